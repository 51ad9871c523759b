"""Remote libSQL servers: Hrana over HTTP, and over WebSockets through libsql-client."""
