"""Tests of what a process does for all of its runs."""
