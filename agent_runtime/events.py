"""What happens in a run, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal[
    "run-start",
    "text-delta",
    "reasoning-delta",
    "model-retry",
    "answer",
    "file",
    "tool-start",
    "tool-finish",
    "note",
    "activation",
    "memory",
    "observation",
    "recall",
    "plan",
    "question",
    "run-suspend",
    "run-finish",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a thread; a run's listener also gets those of its child runs' threads.

    Attributes:
        id: rises strictly within the thread, in commit order; 0 for events that are live only.
        node_id: the node that it is about; its content is read from the log.
        data: by kind:

            - `run-start`: `agent`, `model`, `max_steps`, `resumed` (bool), `steps` (made before);
              with observational memory `observe_at` and `reflect_at` (its thresholds in tokens),
              and `warnings` if there are any; of a child run also `parent` (the run that began it)
              and `task_key` (empty if it was not delegated); `turns_left_out` if that many turns
              of a node's memory did not fit before the task
            - `text-delta`, `reasoning-delta` (live only): `text`
            - `model-retry` (live only): `reason`, `attempt`, `wait` (seconds)
            - `answer`: `step`, `calls` (number), `prompt_tokens`, `cached_tokens`,
              `completion_tokens` (None where unreported), `cost` (nanodollars or None); with
              observational memory `raw_tokens` and `observed_tokens` of the prompt
            - `file`, of one that a model is not shown but only told of: `name`, `uri`, `reason`
            - `tool-start`: `call_id`, `tool`; live also `arguments`
            - `tool-finish`: `call_id`, `tool`, `outcome`, `chars`, `cut` (bool)
            - `note`: `source`
            - `activation`: `cause`, `left_out` (nodes), `cut` (results), `tokens`; where what the
              user requires does not fit its budget, `constraints_named` (how many are only named)
            - `memory` (live only), when it begins to work: `purpose` (`observe` or `reflect`),
              `tokens` (of what it reads), `again` (bool: what rules wrote is written by a model)
            - `observation`: `id`, `level`, `first` and `last` (nodes), `tokens`, `of` (tokens of
              what it stands for), `origin`, `provisional`, `again`, `why` (it is not as asked for);
              `calls` and what they used, as for `answer`
            - `recall`: `found` (a list of `thread`, `node` and `call`), and where something was
              looked for `query` (the node that says for what), `mode` and `tokens`; `why` it is not
              as asked for
            - `plan`, of a new version: `version`, `phase`, `iteration`, and how many items have
              each status; live also `plan` (a `Plan`) and `followed` (the calls that its items may
              follow)
            - `question`: `id`, `kind`; with the call that asks also `call_id` and `tool`, of a
              sub-agent also `role` and `task_key`
            - `run-suspend`, when it waits for a person, is paused, or its process is gone:
              `status`, `stop_reason`, `detail`
            - `run-finish`: `status`, `stop_reason`, `detail`
    """

    kind: EventKind
    thread_id: str
    run_id: str
    id: int = 0
    node_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
