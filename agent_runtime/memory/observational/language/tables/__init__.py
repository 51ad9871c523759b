"""One table of words and patterns a language; each is imported when a text needs it."""
