"""Spans and metrics by OpenTelemetry, and counts of this process's work for Prometheus.

Nothing here imports OpenTelemetry: a program that wants spans or metrics has imported it and set a
provider, and without one each function returns at once.
"""
