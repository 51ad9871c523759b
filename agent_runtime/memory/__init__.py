"""What an agent remembers: observations, recall, conversations and the memory of nodes."""
