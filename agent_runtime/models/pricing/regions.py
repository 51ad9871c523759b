"""What a model costs more in some regions, by the address that it is called at.

OpenAI and Google charge a share on top of all rates where they promise that data stays in a region.
Where the region is not known, the dearest one counts, so that a budget is kept in any case.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_OPENAI = "api.openai.com"
_BY_REGION = "regional_processing_uplift_multiplier_"
_OUTSIDE_GLOBAL = "regional_endpoint_uplift_multiplier"


def uplift_of(provider: str, entry: Mapping[str, Any], base_url: str | None) -> float:
    """Return by what all rates of a model are multiplied at an address.

    Args:
        entry: the model's entry in litellm's table.
        base_url: the user's; None for the provider's own.
    """
    if provider == "vertex_ai":
        # litellm's variables; without one it calls a regional endpoint.
        named = os.environ.get("VERTEXAI_LOCATION") or os.environ.get("VERTEX_LOCATION") or ""
        return 1.0 if named.lower() == "global" else float(entry.get(_OUTSIDE_GLOBAL) or 1)
    regions = {key.removeprefix(_BY_REGION): key for key in entry if key.startswith(_BY_REGION)}
    if provider != "openai" or not regions:
        return 1.0
    address = base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    host = urlsplit(address or f"https://{_OPENAI}").hostname or ""
    if host == _OPENAI:
        return 1.0
    region = host.removesuffix(f".{_OPENAI}")
    # Behind a gateway the region is unknown.
    wanted = [regions[region]] if region in regions else list(regions.values())
    return max(float(entry.get(key) or 1) for key in wanted)
