"""Threads with their nodes, runs, inbox, events, jobs, questions, files and spending."""
