"""Servers and helpers to test agents with, without a real model."""

__all__: list[str] = []
