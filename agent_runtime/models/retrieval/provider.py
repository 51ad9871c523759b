"""What embedders and rerankers share that litellm calls: access, checks, and the retries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

import anyio
import anyio.to_thread

from agent_runtime.errors import ModelProtocolError, ModelStalled
from agent_runtime.models.access import ModelAccess
from agent_runtime.models.attempts import wait_before
from agent_runtime.models.error_mapping import AttemptFailure, failure_of
from agent_runtime.models.litellm import load_litellm

T = TypeVar("T")
P = TypeVar("P")
"""What a price consists of."""


class RetrievalModel(ABC, Generic[P]):
    """A model that is no language model, called through litellm.

    Its arguments are described where users look for them, at its subclasses.

    Raises:
        ConfigError: the name is empty.
    """

    function: ClassVar[str]
    """litellm's function that calls it."""
    gives: ClassVar[str]
    """What an answer consists of."""
    variable: ClassVar[str]
    """The setting of its timeout."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        retries: int,
        price: P | None,
        local_only: bool,
    ) -> None:
        self._access = ModelAccess.of(
            name, base_url=base_url, api_key=api_key, local_only=local_only
        )
        self._timeout = timeout
        self._retries = retries
        self._price = price

    @property
    def name(self) -> str:
        """litellm's name of the model."""
        return self._access.name

    @property
    def price(self) -> P | None:
        """The given price, or the known one; None for none."""
        return self._known_price() if self._price is None else self._price

    @abstractmethod
    def _known_price(self) -> P | None:
        """Read the price from the table of models."""

    async def check(self) -> None:
        """Check that the model can be called, without calling it; loads litellm.

        Raises:
            RealModelForbidden: it may not be called.
            ModelAuthError: its key is missing.
        """
        self._access.check_allowed()
        self._access.check_key(await load_litellm())
        # Reads the price from a large file, in a thread and only once.
        await anyio.to_thread.run_sync(self._known_price)

    async def _call(
        self, arguments: Mapping[str, object], read: Callable[[Any], T]
    ) -> tuple[T, int]:
        """Call the model until `read` understands its response.

        Returns what that returns, and how many failed attempts may be billed.

        Raises:
            RealModelForbidden, ModelAuthError, ModelNotFound, ModelRejected, ModelOverflow: at
                once.
            ModelUnavailable, ModelStalled, ModelProtocolError: after all retries.
        """
        await self.check()
        litellm = await load_litellm()
        lost, attempt = 0, 0
        while True:
            attempt += 1
            found = await self._attempt(litellm, arguments, read)
            if not isinstance(found, AttemptFailure):
                return found, lost
            lost += found.billed
            if not found.retry or attempt > self._retries:
                found.error.lost = lost
                raise found.error
            await anyio.sleep(wait_before(attempt, found))

    async def _attempt(
        self, litellm: Any, arguments: Mapping[str, object], read: Callable[[Any], T]
    ) -> T | AttemptFailure:
        call = getattr(litellm, self.function)
        try:
            with anyio.fail_after(self._timeout):
                response = await call(
                    model=self.name,
                    timeout=self._timeout,
                    **arguments,
                    **self._access.arguments(litellm),
                )
            return read(response)
        except TimeoutError:
            stalled = ModelStalled(
                f"{self.name} gave no {self.gives} within {self._timeout:g} s.",
                cure=f"Try again, or raise {self.variable}.",
            )
            return AttemptFailure(stalled, retry=True, billed=True)
        except ModelProtocolError as error:
            return AttemptFailure(error, retry=True, billed=True)
        except Exception as error:
            # Not chained: litellm's text may hold the key, and a traceback would show it.
            return failure_of(error, self.name, streaming=False, secrets=self._access.secrets())


def field(one: Any, name: str) -> object:
    """Return a field of a part of litellm's response, which may be an object or a dict."""
    if isinstance(one, dict):
        return cast("dict[str, object]", one).get(name)
    return getattr(one, name, None)
