"""Tools: `@tool` turns a function into something that a model can call."""
