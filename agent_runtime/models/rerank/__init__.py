"""Rerankers: models that say how well each of some texts answers a query."""
