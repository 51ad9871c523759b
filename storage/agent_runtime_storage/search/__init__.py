"""Full text ranked by BM25, and vectors."""
