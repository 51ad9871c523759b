"""What an agent is told of the place where it works: system, git, the project's instructions."""
