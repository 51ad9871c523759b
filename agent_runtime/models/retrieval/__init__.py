"""Embedders, which turn texts into vectors, and rerankers, which score texts for a query."""
