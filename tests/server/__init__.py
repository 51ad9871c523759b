"""Tests of `agent_runtime.server`."""
