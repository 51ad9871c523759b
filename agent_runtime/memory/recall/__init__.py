"""Semantic recall: index messages as vectors and find them again."""
