"""Access to a model: its address, its key, and whether it may be called at all."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from agent_runtime.errors import ConfigError, ModelAuthError, ModelNotFound, RealModelForbidden
from agent_runtime.models.catalog import full_name, provider_of

FORBID = "AGENT_RUNTIME_FORBID_REAL_MODELS"
"""While this environment variable is true, only models on this machine may be called."""

_NO_KEY = "none"
# litellm's variables for keys whose names do not follow from the provider's.
_KEYS = {
    "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY", "AZURE_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "huggingface": ("HUGGINGFACE_API_KEY", "HF_TOKEN"),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "text-completion-openai": ("OPENAI_API_KEY",),
    "ollama_chat": ("OLLAMA_API_KEY",),
}
# Providers that are reached with a key in the variable of their name only, as litellm says.
_KEY_BY_NAME = frozenset(
    (
        "ai21",
        "ai21_chat",
        "baseten",
        "cerebras",
        "codestral",
        "cohere",
        "dashscope",
        "deepinfra",
        "deepseek",
        "edenai",
        "featherless_ai",
        "fireworks_ai",
        "groq",
        "inception",
        "mistral",
        "moonshot",
        "nebius",
        "novita",
        "nvidia_nim",
        "openrouter",
        "replicate",
        "voyage",
        "xai",
    )
)
# Their requests are signed, or carry a token obtained for another kind of key.
_SIGNING = (
    "bedrock",
    "databricks",
    "gigachat",
    "github_copilot",
    "chatgpt",
    "oci",
    "sagemaker",
    "sagemaker_chat",
    "sap",
    "snowflake",
    "vertex_ai",
    "vertex_ai_beta",
    "watsonx",
)
# Packages with which litellm signs requests, or obtains a token, of our extra of that name: by
# provider, the extra, the module and the package.
_PACKAGES = {
    "bedrock": ("bedrock", "boto3", "boto3"),
    "sagemaker": ("bedrock", "boto3", "boto3"),
    "sagemaker_chat": ("bedrock", "boto3", "boto3"),
    "vertex_ai": ("vertex", "google.auth", "google-auth"),
    "vertex_ai_beta": ("vertex", "google.auth", "google-auth"),
    "azure": ("azure", "azure.identity", "azure-identity"),
    "azure_ai": ("azure", "azure.identity", "azure-identity"),
}
# litellm calls their own hosts and ignores a base URL.
_ONE_HOST = ("chatgpt", "gigachat", "github_copilot", "replicate")
# litellm appends the version to the base URL of these itself.
_WITHOUT_VERSION = ("anthropic", "ollama", "ollama_chat")


@dataclass(frozen=True, slots=True, repr=False)
class ModelAccess:
    """How litellm reaches a model.

    Attributes:
        name: litellm's name of the model.
        base_url: of an OpenAI-compatible server; None for the provider's own.
        api_key: None for the provider's own variable.
        local_only: refuse calls that would leave this machine.
    """

    name: str
    base_url: str | None = None
    api_key: str | None = None
    local_only: bool = False

    @classmethod
    def of(
        cls, name: str, *, base_url: str | None, api_key: str | None, local_only: bool
    ) -> ModelAccess:
        """Return the access for a model's name as the user wrote it.

        Raises:
            ConfigError: the name is empty, or the provider takes no base URL.
        """
        full = full_name(name)
        if not full:
            raise ConfigError(
                "The model has no name.",
                cure="Give it as provider/model, such as anthropic/claude-sonnet-4-5.",
            )
        if base_url is not None and "/" not in full:
            full = f"openai/{full}"
        if base_url is not None and provider_of(full) in _ONE_HOST:
            raise ConfigError(
                f"{full} is always called at its provider's own host, not at a base URL.",
                cure="Unset its base URL, or name the model as openai/… of that server.",
            )
        return cls(full, base_url, api_key, local_only)

    def check_allowed(self) -> None:
        """Check that the model may be called.

        Raises:
            RealModelForbidden: the call would leave this machine, and that is forbidden.
        """
        switch = os.environ.get(FORBID, "").strip().lower()
        # Fails closed: a value that nobody understands forbids as well.
        allowed = not self.local_only and switch in ("", "0", "false", "no", "off", "f", "n")
        if allowed or _is_loopback(self.base_url):
            return
        raise RealModelForbidden(
            f"A call of {self.name} was refused: {FORBID} forbids real models.",
            cure="Use a scripted model, a base URL on this machine, or unset the variable.",
        )

    def check_package(self) -> None:
        """Check that the package with which the provider's requests are signed is installed.

        Raises:
            ModelAuthError: it is missing.
        """
        provider = provider_of(self.name)
        extra, module, package = _PACKAGES.get(provider, ("", "", ""))
        # Azure takes keys too; its package obtains tokens where there is none.
        keyed = self.api_key is not None or any(map(os.environ.get, _KEYS.get(provider, ())))
        if not extra or (extra == "azure" and keyed) or _is_installed(module):
            return
        cure = f"Install it with `pip install 'agent-runtime-om[{extra}]'`."
        if extra == "azure":
            # Most have a key, and forgot to set it.
            cure = f"Set {_KEYS[provider][0]}. To sign in without a key: {cure}"
        raise ModelAuthError(
            f"{self.name} needs the package {package}, which is not installed.", cure=cure
        )

    def check_known_key(self) -> None:
        """Check the key of a provider whose variable is known without litellm.

        Importing litellm takes seconds, which a person without a key should not wait for.

        Raises:
            ModelAuthError: it is missing.
        """
        provider = provider_of(self.name)
        # A server of the user's own may need no key.
        if self.api_key is not None or self.base_url is not None or provider not in _KEY_BY_NAME:
            return
        names = _KEYS.get(provider, (f"{provider.removesuffix('_chat').upper()}_API_KEY",))
        if not any(map(os.environ.get, names)):
            raise _missing_key(self.name, " or ".join(names))

    def check_provider(self, litellm: Any) -> None:
        """Check that litellm knows the provider.

        Raises:
            ModelNotFound: it does not.
        """
        try:
            litellm.get_llm_provider(self.name, api_base=self.base_url)
        except litellm.BadRequestError:
            raise ModelNotFound(
                f"No provider is known for {self.name}.",
                cure="Write it as provider/model, such as anthropic/claude-sonnet-4-5.",
                model=self.name,
            ) from None

    def check_key(self, litellm: Any) -> None:
        """Check that the provider's key is available.

        Raises:
            ModelAuthError: it is missing.
        """
        if self.api_key is not None or self.base_url is not None:
            return
        found = litellm.validate_environment(model=self.name)
        missing = cast("list[str]", found.get("missing_keys") or [])
        # Other variables than keys have substitutes: roles, profiles, metadata services.
        if missing and all(name.endswith("_API_KEY") for name in missing):
            raise _missing_key(self.name, " or ".join(missing))

    def arguments(self, litellm: Any) -> dict[str, Any]:
        """Return litellm's arguments for address and key."""
        arguments: dict[str, Any] = {}
        if self.base_url is not None:
            arguments["api_base"] = _root(self.base_url, provider_of(self.name))
        if self.api_key is not None:
            arguments["api_key"] = self.api_key
        elif self._lacks_key(litellm):
            # Private servers mostly need no key, but the client demands one, and would otherwise
            # send OpenAI's key to any provider.
            arguments["api_key"] = _NO_KEY
        return arguments

    def _lacks_key(self, litellm: Any) -> bool:
        """Return whether litellm would find no key of the model's own provider."""
        provider = provider_of(self.name)
        names = _KEYS.get(provider, (f"{provider.upper()}_API_KEY",))
        if provider in _SIGNING or any(os.environ.get(name) for name in names):
            return False
        if provider in litellm.openai_compatible_providers:
            return not litellm.get_llm_provider(self.name, api_base=self.base_url)[2]
        return self.base_url is not None

    def secrets(self) -> list[str]:
        """Return the keys that an error's text may contain: the given one and the environment's."""
        password = urlsplit(self.base_url or "").password or ""
        # Also those of other providers: litellm's errors may quote any variable.
        return [*environment_keys(os.environ), self.api_key or "", password]


def _missing_key(name: str, variables: str) -> ModelAuthError:
    return ModelAuthError(
        f"{name} needs a key, and {variables} is not set.", cure=f"Set {variables}."
    )


def environment_keys(environment: Mapping[str, str]) -> list[str]:
    """Return the values of an environment's variables that hold keys."""
    endings = ("_API_KEY", "_TOKEN", "_SECRET", "_ACCESS_KEY")
    return [value for name, value in environment.items() if name.endswith(endings)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it is in is missing.
        return False


def _root(url: str, provider: str) -> str:
    """Return a base URL in litellm's form."""
    url = url.rstrip("/")
    return url.removesuffix("/v1") if provider in _WITHOUT_VERSION else url


class NoLookups:
    """A client for litellm that refuses its look-ups of models.

    litellm asks a hub, or a server at its default address, for windows and prices that we do not
    use: without a deadline, on the event loop, and not where the model is.  It works without an
    answer.  Only requests for a provider's token pass to the replaced client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def get(self, url: str, *_: Any, **__: Any) -> Any:
        """Refuse the request."""
        raise ConnectionError(
            f"Only a model's own provider is asked, not {urlsplit(url).hostname}."
        )

    def post(self, url: str, data: Any = None, **options: Any) -> Any:
        """Fetch a token; refuse other requests."""
        if isinstance(data, dict) and "grant_type" in data:
            return self._client.post(url, data=data, **options)
        return self.get(url)


def _is_loopback(url: str | None) -> bool:
    host = urlsplit(url or "").hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
