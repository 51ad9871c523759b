"""What every query shares: the owner's scope, the decoding of rows, run specs and migrations."""
