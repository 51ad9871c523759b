"""The data behind the page that shows threads: steps, prompts, observations, places."""

from agent_runtime.server.inspector.routes import inspector_routes

__all__ = ["inspector_routes"]
