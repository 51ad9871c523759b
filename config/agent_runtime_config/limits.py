"""The largest limits: databases keep tokens and nanodollars in 64 bits."""

from __future__ import annotations

MAX_TOKENS = 10**15
MAX_DOLLARS = 1e9
MAX_SECONDS = 1e9
