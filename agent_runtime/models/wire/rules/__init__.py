"""What each provider's API refuses in a request, by its documentation."""
