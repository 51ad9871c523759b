"""The HTTP service: breaks of the connection, the cost of a step, thousands of streams."""
