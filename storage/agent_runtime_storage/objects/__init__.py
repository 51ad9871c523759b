"""Large bodies and documents outside the database, in a folder or a bucket."""
