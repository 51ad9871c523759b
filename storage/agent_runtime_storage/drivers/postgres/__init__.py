"""The driver for a Postgres server with pgvector."""
