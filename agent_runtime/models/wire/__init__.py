"""The wires: how each provider's API takes a prompt and streams an answer; no I/O."""
