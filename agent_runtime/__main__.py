"""`python -m agent_runtime`: the same as the command `agent-runtime`."""

from agent_runtime.cli import main

if __name__ == "__main__":
    main(prog_name="agent-runtime")
