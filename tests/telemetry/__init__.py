"""Tests of `agent_runtime.models.telemetry`."""
