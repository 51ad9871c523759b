"""The names of variables: of settings, of the files that hold them, and of providers."""

from __future__ import annotations

import re

PREFIX = "AGENT_RUNTIME_"
ENV_FILE = "AGENT_RUNTIME_ENV_FILE"
"""Names an env file; a relative path starts at the current folder."""
CONFIG_FILE = "AGENT_RUNTIME_CONFIG_FILE"
"""Names a configuration file instead of the user's; `none` for no file."""
PLACES = (ENV_FILE, CONFIG_FILE)

_PROVIDER = re.compile(r"[A-Z][A-Z0-9_]*_(?:API_KEY|API_BASE|BASE_URL|API_VERSION)")
_CLOUD = frozenset((
    "ANTHROPIC_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_DEFAULT_REGION",
    "AWS_PROFILE", "AWS_REGION", "AWS_REGION_NAME", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AZURE_AD_TOKEN", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
    "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN", "TOGETHER_AI_TOKEN", "VERTEXAI_LOCATION",
    "VERTEXAI_PROJECT", "VERTEX_LOCATION", "VERTEX_PROJECT",
))  # fmt: skip
_KEY = re.compile(r"[A-Z][A-Z0-9_]*(?:_API_KEY|_TOKEN|_ACCESS_KEY|_ACCESS_KEY_ID|_CLIENT_SECRET)")

# What a file may set that nobody named by its full path: another project's `.env` may be there.
# A setting that is missing here is refused, so that a new one is safe until somebody thinks of it.
HARMLESS = frozenset((
    "MODEL", "CONTEXT_WINDOW", "RESPONSE_RESERVE", "MAX_OUTPUT_TOKENS", "REPEAT_SYSTEM_PROMPT",
    "MODEL_SETTINGS", "FIRST_BYTE_TIMEOUT", "IDLE_TIMEOUT", "MODEL_RETRIES", "MODEL_RATE_LIMITS",
    "LAST_MESSAGES", "TIMEZONE", "PLAN_PHASES", "OBSERVATIONAL_MEMORY", "OBSERVER_MODEL",
    "OBSERVER_CONTEXT_WINDOW", "OBSERVER_MAX_OUTPUT_TOKENS", "OBSERVER_MESSAGE_TOKENS",
    "OBSERVER_TIMEOUT", "REFLECTOR_MODEL", "REFLECTOR_CONTEXT_WINDOW",
    "REFLECTOR_MAX_OUTPUT_TOKENS", "REFLECTOR_OBSERVATION_TOKENS", "CONSTRAINT_SHARE",
    "ACTIVATION", "ACTIVATE_AFTER_IDLE", "SUB_AGENT_MODEL", "SUB_AGENT_CONTEXT_WINDOW",
    "SUB_AGENT_MAX_OUTPUT_TOKENS", "EMBEDDER_MODEL", "EMBEDDER_TIMEOUT", "RERANKER_MODEL",
    "RERANKER_TIMEOUT", "SEMANTIC_RECALL_TOP_K", "SEMANTIC_RECALL_BEFORE",
    "SEMANTIC_RECALL_AFTER", "SEMANTIC_RECALL_MODE", "SEMANTIC_RECALL_TOKENS",
    "SEMANTIC_RECALL_TIMEOUT", "MAX_RESULT_TOKENS",
))  # fmt: skip


def is_provider_variable(name: str) -> bool:
    """Return whether a variable is a provider's key, address or place, by its name."""
    return name in _CLOUD or _PROVIDER.fullmatch(name) is not None


def is_key(name: str) -> bool:
    """Return whether a variable holds a secret, by its name."""
    return _KEY.fullmatch(name) is not None
