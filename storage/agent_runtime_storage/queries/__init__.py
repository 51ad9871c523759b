"""Parts that all queries share: the owner's scope, decoded rows, run specs, migrations."""
