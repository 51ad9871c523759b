"""`agent-runtime mcp serve`: the command line's agent as an MCP server on stdin and stdout."""
