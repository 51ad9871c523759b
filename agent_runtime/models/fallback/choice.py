"""`ModelChoice`: which of a run's models is in use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agent_runtime.errors import ModelError
from agent_runtime.models.base import Model, ModelInfo
from agent_runtime.models.fallback.failures import kind_of, reason_of
from agent_runtime.models.fallback.model import Attempts, FallbackModel
from agent_runtime.models.tokens import Calibration


@dataclass(frozen=True, slots=True)
class _Candidate:
    model: Model
    info: ModelInfo
    calibration: Calibration


class ModelChoice:
    """The model of a run that is in use, with what holds for it alone.

    The loop calls the models of a `FallbackModel` itself, so that each prompt is made for the
    model that gets it.
    """

    def __init__(self, source: Model, candidates: list[_Candidate]) -> None:
        self._candidates = candidates
        self._source = source if isinstance(source, FallbackModel) else None
        self._attempts: Attempts | None = None
        # Only a look: making a run's setup is no attempt, and must not hold other runs off.
        self._current = self._source.attempts(peek=True).index if self._source else 0

    @classmethod
    def single(cls, model: Model, info: ModelInfo, calibration: Calibration) -> ModelChoice:
        """Return the choice of one model."""
        return cls(model, [_Candidate(model, info, calibration)])

    @classmethod
    async def of(
        cls, source: Model, calibrate: Callable[[Model, ModelInfo], Awaitable[Calibration]]
    ) -> ModelChoice:
        """Return the choice among the models of a `FallbackModel`, or of the one that it is.

        Args:
            calibrate: returns what is known of a model's tokens.
        """
        models = source.models if isinstance(source, FallbackModel) else (source,)
        candidates: list[_Candidate] = []
        for model in models:
            info = await model.info()
            candidates.append(_Candidate(model, info, await calibrate(model, info)))
        return cls(source, candidates)

    @property
    def model(self) -> Model:
        """The model in use."""
        return self._candidates[self._current].model

    @property
    def info(self) -> ModelInfo:
        """The facts of the model in use."""
        return self._candidates[self._current].info

    @property
    def calibration(self) -> Calibration:
        """The ratio of its tokens to ours."""
        return self._candidates[self._current].calibration

    @property
    def infos(self) -> list[ModelInfo]:
        """The facts of all models, the preferred one first."""
        return [one.info for one in self._candidates]

    @property
    def several(self) -> bool:
        """Whether there are other models."""
        return len(self._candidates) > 1

    def has(self, name: str) -> bool:
        """Return whether a model of this name is among the models."""
        return any(one.model.name == name for one in self._candidates)

    def begin(self) -> dict[str, Any] | None:
        """Choose the model for the next call; return the event's data if it changes."""
        if self._source is None:
            return None
        before = self._current
        self._attempts = self._source.attempts()
        self._current = self._attempts.index
        if self._current == before:
            return None
        old, new = self._candidates[before].model.name, self.model.name
        # A preferred model has ended its cool-down; otherwise the one in use is in one.
        if self._current < before:
            return {"from": old, "to": new, "why": "cool-down", "reason": f"{new} is tried again."}
        reason = f"{old} failed a short time ago."
        return {"from": old, "to": new, "why": "cool-down", "reason": reason}

    def answered(self) -> None:
        """Note that the model in use answered."""
        if self._attempts is not None:
            self._attempts.answered()

    def fall_back(self, error: ModelError) -> dict[str, Any]:
        """Use the next model after a failure; return the event's data.

        Raises:
            ModelError: there is none that may help.
        """
        attempts = self._attempts
        if attempts is None:
            raise error
        before = self.model.name
        if not attempts.fall_back(error):
            failed = attempts.error(error)
            raise failed from (None if failed is error else error)
        self._current = attempts.index
        data = {"from": before, "to": self.model.name, "why": kind_of(error)}
        data["reason"] = reason_of(error)
        return data | ({"warning": error.cure} if attempts.warn and error.cure else {})
