"""Types of parameters whose bounds are checked, and left out of the schemas in every prompt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

_INTEGER = WithJsonSchema({"type": "integer"})

Offset = Annotated[int, Field(ge=0), _INTEGER]
"""How much to skip."""
Count = Annotated[int, Field(ge=1, le=10_000), _INTEGER]
"""How many lines, matches or entries."""
Line = Annotated[int, Field(ge=1), _INTEGER]
"""The number of a line."""
Chars = Annotated[int, Field(ge=1, le=100_000), _INTEGER]
"""How many characters to show."""
ContextLines = Annotated[int, Field(ge=0, le=50), _INTEGER]
"""How many lines to show around a match."""
Pattern = Annotated[str, Field(min_length=1, max_length=1000), WithJsonSchema({"type": "string"})]
"""A regular expression."""
