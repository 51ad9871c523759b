"""The HTTP service, over a real server on loopback and real stores."""
