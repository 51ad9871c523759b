"""MCP: the tools of servers that speak the Model Context Protocol, over stdio or HTTP."""
