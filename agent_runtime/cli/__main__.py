"""`python -m agent_runtime.cli`: the same as the command `agent-runtime`."""

from . import main

main(prog_name="agent-runtime")
