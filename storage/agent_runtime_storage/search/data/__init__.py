"""Words and characters of languages, as text files."""
