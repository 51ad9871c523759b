"""Language models of any provider, through litellm.

litellm is imported on the first call, in a thread: it takes seconds and 185 MB.  Retries,
deadlines, errors and prices are ours, because litellm's differ from provider to provider.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from agent_runtime.errors import ConfigError, ModelProtocolError
from agent_runtime.models.access import FORBID, NoLookups
from agent_runtime.models.attempts import AttemptError, ProviderModel, stalled, until, with_retries
from agent_runtime.models.base import (
    ModelEvent,
    ModelInfo,
    ModelRequest,
    SettingIgnored,
)
from agent_runtime.models.catalog import is_chat_model, provider_of
from agent_runtime.models.error_mapping import AttemptFailure, failure_of
from agent_runtime.models.finish_reasons import FinishReader
from agent_runtime.models.litellm_settings import settings_arguments
from agent_runtime.models.openai_format import Collector, Dialect, cache_key, messages_of, tools_of
from agent_runtime_config.log_filter import hide_secrets_in_logs

# They keep litellm's import from reading the project's `.env` and from logging.
_ENVIRONMENT = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
}
# Always set: use the lists in the wheel, and do not download newer ones.
_OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
}
# Providers whose servers are known to take OpenAI's `prompt_cache_key`.
_ROUTING_PROVIDERS = ("openai", "azure")


@contextlib.contextmanager
def forbid_real_models() -> Generator[None]:
    """Forbid calls that leave this machine, in the whole process, for the time of a `with`."""
    before = os.environ.get(FORBID)
    os.environ[FORBID] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORBID]
        else:
            os.environ[FORBID] = before


class LiteLLMModel(ProviderModel):
    """A language model called through litellm.

    Args:
        name: litellm's name of it, such as `anthropic/claude-sonnet-4-5`; also `provider:model`.
        base_url: of an OpenAI-compatible server; by default the provider's own.
        api_key: by default the provider's own variable, such as `ANTHROPIC_API_KEY`.
        first_byte_timeout: seconds until the answer must begin.
        idle_timeout: the longest silence in an answer, in seconds.
        retries: how often a failed call is retried; waits are random and grow to 60 s.
        price: instead of the known price, for example for a model of your own.
        window: instead of the known context window, in tokens.
        max_output: instead of the known limit of one answer, in tokens.
        takes: instead of what is known, the kinds of files to send: `image`, `audio`, `document`
            (PDF), `video`.
        local_only: refuse calls that would leave this machine.

    Raises:
        ConfigError: the name is empty.
    """

    async def check(self) -> None:
        """Check that the model can be called, without calling it; loads litellm.

        Raises:
            RealModelForbidden: it may not be called.
            ModelAuthError: its key is missing, or the package that signs its requests.
            ModelNotFound: nobody knows its provider.
        """
        self._access.check_allowed()
        self._access.check_package()
        self._access.check_known_key()
        litellm = await load_litellm()
        self._access.check_provider(litellm)
        self._access.check_key(litellm)

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        await self.check()
        info = await self.info()
        litellm = await load_litellm()
        settings, ignored = settings_arguments(
            litellm, self._name, request.settings, has_tools=bool(request.tools)
        )
        for name in ignored:
            yield SettingIgnored(name)

        def attempt() -> AsyncGenerator[ModelEvent]:
            # Built for each attempt, because litellm modifies its arguments.
            arguments = self._arguments(request, info, copy.deepcopy(settings))
            return self._attempt(
                litellm, arguments, Collector(self._name, self._dialect(info).returns)
            )

        service = "" if "service_tier" in ignored else request.settings.service
        events = with_retries(attempt, retries=self._retries, info=info, service=service)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _attempt(
        self, litellm: Any, arguments: dict[str, Any], collector: Collector
    ) -> AsyncGenerator[ModelEvent]:
        """Call the model once.

        Raises:
            AttemptError: with the failure and whether to retry.
        """
        ending = FinishReader()
        deadline = anyio.current_time() + self._first_byte_timeout
        stream: Any = None
        began = False
        try:
            with until(deadline):
                stream = await litellm.acompletion(**arguments)
            ending.listen(stream)
            chunks = aiter(stream)
            while True:
                with until(deadline):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    break
                began = True
                for event in collector.add(chunk):
                    yield event
                deadline = anyio.current_time() + self._idle_timeout
            word, reported = ending.of(stream), _reported(stream)
            yield collector.answer(word, refusal=ending.refusal, reported=reported)
        except TimeoutError:
            late = stalled(self._name, self._first_byte_timeout, self._idle_timeout, began=began)
            raise AttemptError(late) from None
        except ModelProtocolError as error:
            raise AttemptError(AttemptFailure(error, retry=True, billed=True)) from None
        except Exception as error:
            # Not chained: litellm's text may hold the key, and a traceback would show it.
            failure = failure_of(error, self._name, streaming=began, secrets=self._access.secrets())
            raise AttemptError(failure) from None
        finally:
            if stream is not None:
                # Only this closes the connection.
                with anyio.CancelScope(shield=True):
                    await stream.aclose()

    def _arguments(
        self, request: ModelRequest, info: ModelInfo, settings: dict[str, Any]
    ) -> dict[str, Any]:
        dialect = self._dialect(info)
        provider = dialect.provider
        arguments: dict[str, Any] = {
            "model": self._name,
            "messages": messages_of(request, dialect),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": min(request.max_output, info.max_output)
            if info.output_known
            else request.max_output,
            # Only a backstop: the deadlines above come first.
            "timeout": self._first_byte_timeout + self._idle_timeout,
            # Retries are ours alone: several layers of them would multiply.
            "max_retries": 0,
            "num_retries": None,
        }
        if request.tools:
            arguments["tools"] = tools_of(request.tools)
        arguments |= settings
        if self._access.base_url is not None and provider == "openai" and is_chat_model(self._name):
            arguments |= _past_the_sdk(arguments["messages"], arguments.get("extra_body") or {})
        arguments |= self._access.arguments(_import_litellm())
        if request.session and provider in _ROUTING_PROVIDERS and self._access.base_url is None:
            arguments["prompt_cache_key"] = cache_key(request.session)
        return arguments

    def _dialect(self, info: ModelInfo) -> Dialect:
        return Dialect(
            model=self._name,
            provider=provider_of(self._name),
            takes=info.takes,
            marks=info.cache_marks > 0,
            host=urlsplit(self._access.base_url or "").hostname or "",
        )


@functools.cache
def _import_litellm() -> Any:
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    os.environ.update(_OFFLINE)
    hide_secrets_in_logs()
    collecting = gc.isenabled()
    # The import makes a million lasting objects; garbage collection would double its time.
    gc.disable()
    try:
        module: Any = importlib.import_module("litellm")
        # Otherwise the first call imports these on the event loop, which blocks it for 0.9 s.
        importlib.import_module("openai.resources")
        _ = getattr(module, "encoding", None)
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        raise ConfigError(
            "litellm is not installed, and the model is not of a provider with a wire of our own.",
            cure="Install it: pip install litellm",
        ) from None
    finally:
        if collecting:
            gc.enable()
    module.suppress_debug_info = True
    # Otherwise a name such as `llama-3` makes it download a tokenizer on the event loop.
    module.disable_hf_tokenizer_download = True
    module.module_level_client = NoLookups(module.module_level_client)
    return module


async def load_litellm() -> Any:
    """Return the module litellm; the first call imports it in a thread (about 2 s)."""
    if _import_litellm.cache_info().currsize:
        return _import_litellm()
    return await anyio.to_thread.run_sync(_import_litellm)


def _past_the_sdk(messages: list[dict[str, Any]], extra: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that send messages without the openai SDK's conversion.

    The SDK walks through every message by its type annotations: 30 ms for 200 KB.  It merges
    `extra_body` into the body unread.  This skips litellm's changes too, so it suits only
    OpenAI-compatible servers, whose form ours is already.
    """
    return {
        "messages": [{"role": "user", "content": "-"}],
        "extra_body": {"messages": messages, **extra},
    }


def _reported(stream: Any) -> bool:
    # If a provider reports no usage, litellm's last chunk has an estimate instead.
    chunks = cast("list[Any]", getattr(stream, "chunks", None) or [])
    return any(getattr(chunk, "usage", None) is not None for chunk in chunks)
