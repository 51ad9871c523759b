"""The HTTP service over a runtime, and the page that shows its threads."""

from agent_runtime.server.app import create_app
from agent_runtime.server.users import Authenticate, by_jwt

__all__ = ["Authenticate", "by_jwt", "create_app"]
