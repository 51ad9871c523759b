"""Finding files and lines: globs, ignored files, and matching that ends in time."""
