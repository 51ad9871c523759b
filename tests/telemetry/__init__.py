"""Tests of `agent_runtime.telemetry`."""
