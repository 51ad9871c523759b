"""`python -m agent_runtime.cli`: the same as the command `agent-runtime`."""

from agent_runtime.cli import main

main(prog_name="agent-runtime")
