"""What an agent remembers: observations of its own run, recall, conversations and node memory."""
