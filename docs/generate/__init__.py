"""Writes the pages of the documents that follow from the code.

`python -m docs.generate` writes them, `python -m docs.generate --check` compares them.  What is
written by hand in such a page lies outside of its two marks and is left alone.
"""
