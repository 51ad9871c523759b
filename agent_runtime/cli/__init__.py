"""The command line: `agent-runtime`."""

try:
    from agent_runtime.cli.main import main
except KeyboardInterrupt:
    # Ctrl-C while the imports are under way; their traceback helps nobody.
    raise SystemExit(130) from None

__all__ = ["main"]
