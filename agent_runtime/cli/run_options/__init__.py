"""Options of a run, each with what it does to the settings or to the agent."""
