"""`FallbackModel`: the first of several models that works."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_runtime.errors import ConfigError, ModelError, ModelProtocolError
from agent_runtime.models.base import (
    Checkable,
    Model,
    ModelAnswer,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Retrying,
)
from agent_runtime.models.fallback.failures import all_failed, kind_of, reason_of
from agent_runtime.models.fallback.health import COOL_DOWN, ModelHealth, shared_health
from agent_runtime.models.file_limits.admission import strictest
from agent_runtime.models.pricing.dearest import dearest

if TYPE_CHECKING:
    from agent_runtime_config import Settings
    from agent_runtime_config.groups.model_settings import Role

_log = logging.getLogger(__name__)


class FallbackModel:
    """A language model that is the first of several which works.

    When a model fails after its own retries, or its key or name is wrong, the next one is called
    instead.  It stays in use until the cool-down of the one before it is over, which doubles with
    each failure; state is kept in this process only.  A request that a model refuses, because the
    prompt is too long or for its content, is not sent to another one.

    Args:
        models: names or models, the preferred one first.
        settings: for the models that are named; see `model_from_name`.
        role: the role that the models are used in.
        cool_down: seconds for which a model that failed is passed over; None for the settings'.
        clock: seconds that rise.
        options: arguments of the models that are named, as in `model_from_name`.

    Raises:
        ConfigError: there are fewer than two models, one is named twice or names no language
            model, or the cool-down is not a number of seconds.
    """

    def __init__(
        self,
        models: Sequence[str | Model],
        *,
        settings: Settings | None = None,
        role: Role = "model",
        cool_down: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        if cool_down is None:
            cool_down = COOL_DOWN if settings is None else settings.fallback_cool_down
        if not (math.isfinite(cool_down) and cool_down >= 0):
            raise ConfigError(
                f"The cool-down of a fallback model is {cool_down}, which is no number of seconds.",
                cure="Give 0 or more seconds.",
            )
        found: list[tuple[Model, ModelHealth]] = []
        for one in _checked(models, options):
            if isinstance(one, str):
                found.append(_named(one, settings, role, options))
            elif isinstance(one, FallbackModel):
                # With the health of its models, so that a nested one learns nothing twice.
                found += zip(one.models, one._health, strict=True)
            else:
                found.append((one, ModelHealth()))
        self.models: tuple[Model, ...] = tuple(model for model, _ in found)
        self.cool_down = cool_down
        self._health = [health for _, health in found]
        self._clock = clock

    @property
    def name(self) -> str:
        """The names of the models, separated by commas."""
        return ",".join(model.name for model in self.models)

    async def info(self) -> ModelInfo:
        """Return what holds for each of the models: the smallest limits and the dearest prices."""
        infos = [await model.info() for model in self.models]
        return ModelInfo(
            name=self.name,
            window=min(one.window for one in infos),
            max_output=min(one.max_output for one in infos),
            price=dearest([one.price for one in infos]),
            start_ratio=max(one.start_ratio for one in infos),
            cache_marks=max(one.cache_marks for one in infos),
            takes=frozenset(kind for kind in infos[0].takes if all(kind in i.takes for i in infos)),
            output_known=all(one.output_known for one in infos),
            file_limits=strictest([one.file_limits for one in infos]),
        )

    async def check(self) -> None:
        """Check that one of the models can be called, without calling it.

        Raises `ModelError`, which names all of them, if none can.
        """
        failures: list[tuple[str, ModelError]] = []
        for model in self.models:
            try:
                if isinstance(model, Checkable):
                    await model.check()
            except ModelError as error:
                failures.append((model.name, error))
            else:
                return
        raise all_failed(failures)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        """Call the first model that works.

        A failed one is reported by `Retrying`, so the deltas before it are void.  A model gets no
        reasoning of another one.

        Raises (from the iterator) what the last of the models raises; it names all of them.
        """
        async with aclosing(self._events(request)) as events:
            yield events

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        attempts = self.attempts()
        lost = 0
        while True:
            model = attempts.model
            try:
                async with model.stream(await _request_for(model, request)) as events:
                    async for event in events:
                        if isinstance(event, ModelAnswer):
                            attempts.answered()
                            # The attempts of models before it may be billed as well.
                            yield replace(event, lost=event.lost + lost)
                            return
                        if isinstance(event, Retrying):
                            event = replace(event, lost=event.lost + lost)
                        yield event
                raise ModelProtocolError(f"{model.name} ended its stream without an answer.")
            except ModelError as error:
                lost += error.lost
                if not attempts.fall_back(error):
                    failed = attempts.error(error)
                    failed.lost = lost
                    raise failed from error
                reason = f"{reason_of(error)} {attempts.model.name} is asked instead."
            _log.warning("%s", reason)
            yield Retrying(reason, len(attempts.failures), 0.0, lost)

    def attempts(self, *, peek: bool = False) -> Attempts:
        """Return the attempts at one call, in the order in which the models are to be tried.

        Args:
            peek: only see which model would be called.
        """
        now = self._clock()
        # Those in a cool-down come last: they are better than nothing.
        order = sorted(
            range(len(self.models)),
            key=lambda index: (max(0.0, self._health[index].until - now), index),
        )
        if not peek:
            self._health[order[0]].tried(now, self.cool_down)
        return Attempts(self, order)

    def failed(self, index: int, error: ModelError) -> bool:
        """Note that a model failed; return whether a person is to be warned now."""
        warn = self._health[index].failed(error, self._clock(), self.cool_down)
        if warn:
            _log.warning("%s %s", reason_of(error), error.cure)
        return warn

    def answered(self, index: int) -> None:
        """Note that a model answered."""
        self._health[index].answered()


class Attempts:
    """The attempts at one call: each model is tried once.

    Attributes:
        failures: the models that failed, with their errors.
        warn: whether a person is to be warned of the last failure.
    """

    def __init__(self, parent: FallbackModel, order: Sequence[int]) -> None:
        self.failures: list[tuple[str, ModelError]] = []
        self.warn = False
        self._parent = parent
        self._order = [*order]

    @property
    def index(self) -> int:
        """The place of the model that is tried now."""
        return self._order[0]

    @property
    def model(self) -> Model:
        """The model that is tried now."""
        return self._parent.models[self.index]

    def answered(self) -> None:
        """Note that the model answered."""
        self._parent.answered(self.index)

    def fall_back(self, error: ModelError) -> bool:
        """Go on to the next model after a failure; return whether there is one that may help."""
        if not kind_of(error):
            return False
        self.failures.append((self.model.name, error))
        self.warn = self._parent.failed(self.index, error)
        if len(self._order) == 1:
            return False
        self._order.pop(0)
        return True

    def error(self, error: ModelError) -> ModelError:
        """Return the error that ends the call, after `fall_back` found no other model."""
        return all_failed(self.failures) if kind_of(error) else error


async def _request_for(model: Model, request: ModelRequest) -> ModelRequest:
    """Return the request as a model may get it: without other models' reasoning and marks."""
    foreign = [one for one in request.messages if one.opaque and one.opaque.model != model.name]
    marks = (await model.info()).cache_marks
    messages = request.messages
    if foreign:
        messages = tuple(
            replace(one, opaque=None) if one.opaque and one.opaque.model != model.name else one
            for one in messages
        )
    # The last marks: what is nearest to the end has the longest prefix to read from the cache.
    return replace(request, messages=messages, marks=request.marks[-marks:] if marks else ())


def _checked(models: Sequence[str | Model], options: dict[str, Any]) -> list[str | Model]:
    """Return the models; raise `ConfigError` if they cannot be used."""
    found = [one.strip() if isinstance(one, str) else one for one in models]
    names = [one for one in found if isinstance(one, str)]
    if isinstance(models, str) or "" in names or len(found) < 2:
        raise ConfigError(
            "A fallback model needs two models or more, each with a name.",
            cure="Name them as in AGENT_RUNTIME_MODEL=anthropic/claude-sonnet-4-5,openai/gpt-5.",
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"A fallback model names {twice[0]} twice.",
            cure="Name each model once; a model is retried by itself (AGENT_RUNTIME_MODEL_RETRIES)",
        )
    if words := [name for name in names if name in ("same", "extractive")]:
        raise ConfigError(
            f"{words[0]!r} is among the models of a fallback, but it names no model.",
            cure="Use it alone, or name models only.",
        )
    if options and not names:
        raise ConfigError(
            f"{' and '.join(sorted(options))} is for models that are named, and none is.",
            cure="Give it to the models themselves.",
        )
    return found


def _named(
    name: str, settings: Settings | None, role: Role, options: dict[str, Any]
) -> tuple[Model, ModelHealth]:
    from agent_runtime.models.model_settings import place_for_model
    from agent_runtime.models.named import model_of_one_name

    model = model_of_one_name(name, settings, role, **options)
    url: str | None = options.get("base_url")
    key: str | None = options.get("api_key")
    if settings is not None:
        place = place_for_model(name, settings, role)
        url = url or place.base_url
        key = key or (place.api_key.get_secret_value() if place.api_key else None)
    return model, shared_health(model.name, url, key)
