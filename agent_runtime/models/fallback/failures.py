"""Which failures of a model another model may mend, and how they are reported."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent_runtime.errors import (
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelProtocolError,
    ModelStalled,
    ModelUnavailable,
    RealModelForbidden,
)
from agent_runtime.models.access import environment_keys
from agent_runtime.models.error_mapping import scrub

# The first that matches counts.  The others, such as a prompt that is too long or a call that is
# forbidden, are failures of the request: another model would refuse it, too, or must not get it.
_KINDS: tuple[tuple[type[ModelError], str], ...] = (
    (ModelStalled, "stalled"),
    (ModelUnavailable, "unavailable"),
    (ModelProtocolError, "protocol"),
    (ModelAuthError, "key"),
    (ModelNotFound, "unknown"),
)


def kind_of(error: ModelError) -> str:
    """Return the kind of a failure that another model may mend; empty for any other."""
    return next((kind for one, kind in _KINDS if isinstance(error, one)), "")


def needs_a_person(error: ModelError) -> bool:
    """Return whether a model will fail until somebody changes a key, an account or a name."""
    return isinstance(error, ModelAuthError | ModelNotFound)


def reason_of(error: ModelError) -> str:
    """Return what a failure says, without keys: models of users' own may have quoted them."""
    return scrub(error.message, environment_keys(os.environ))


def all_failed(failures: Sequence[tuple[str, ModelError]]) -> ModelError:
    """Return the error for models that all failed: that of the last, which names all of them."""
    last = failures[-1][1]
    if len(failures) == 1:
        return last
    # Not its own class, whose constructor may be another.
    kinds = (*(one for one, _ in _KINDS), RealModelForbidden, ModelError)
    kind = next(one for one in kinds if isinstance(last, one))
    reasons = " ".join(f"{name}: {reason_of(error)}" for name, error in failures)
    return kind(f"All {len(failures)} models failed. {reasons}", cure=last.cure, lost=last.lost)
