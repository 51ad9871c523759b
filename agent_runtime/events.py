"""What happens in a run, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EventKind = Literal[
    "run-queue",
    "run-start",
    "text-delta",
    "reasoning-delta",
    "model-retry",
    "model-wait",
    "model-fallback",
    "setting-ignored",
    "answer",
    "file",
    "tool-start",
    "tool-progress",
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

    An event refers to nodes of the log and does not repeat what they hold.  The fields of `data`
    depend on the kind; a field marked "optional" is left out where it does not apply.

    - `run-queue` (live): the process has as many runs at work as it admits, so the run waits. Its
      thread is not known yet, nor is its id unless it is resumed.
        - `ahead` (int): how many others wait before it.
    - `run-start`: a run begins, or is resumed.
        - `agent` (str): the agent's name.
        - `model` (str): the model's name.
        - `max_steps` (int): the step limit.
        - `resumed` (bool): whether it continues after an interruption.
        - `steps` (int): steps made before a resume.
        - `used` (dict, optional): of a run that is resumed and has no parent, what it and its child
          runs used so far: `prompt_tokens`, `cached_tokens`, `completion_tokens` and `cost` as in
          `answer`.
        - `observe_at`, `reflect_at` (int, optional): the memory's thresholds in tokens.
        - `warnings` (list of str, optional): settings of the memory that cannot be used, and why.
        - `parent` (str, optional): for a child run, the run that began it.
        - `task_key` (str, optional): for a child run, the key of its task; empty if it was not
          delegated.
        - `task_chars` (int, optional): how many characters of the task prompts show; the whole is a
          file of the thread.
        - `turns_left_out` (int, optional): turns of a node's memory that did not fit.
        - `decided` (dict, optional): by the id of an interrupted call, what the caller of the
          resume decided: `rerun`, `accept` or `fail`.
    - `text-delta` (live): a piece of the answer's text.
        - `text` (str): the piece.
    - `reasoning-delta` (live): a piece of the model's reasoning.
        - `text` (str): the piece.
    - `model-retry` (live): a call failed and is tried again; in an outage, the step is.
        - `reason` (str): what failed.
        - `attempt` (int): which attempt failed, from 1.
        - `wait` (float): seconds until the next one.
    - `model-wait` (live): a call waits until the provider's rate limit lets it through.
        - `reason` (str): which limit, and what is left of it.
        - `wait` (float): seconds until it resets, as far as is known; others may go first then.
    - `model-fallback`: of several models, another one is in use; deltas of the answer so far are
      void.
        - `from`, `to` (str): the names of the models.
        - `why` (str): what failed: `unavailable`, `stalled`, `protocol`, `key` or `unknown`; or
          `cool-down`, if none failed now.
        - `reason` (str): the same as a sentence.
        - `warning` (str, optional): what a person has to mend; only once until it is.
    - `setting-ignored` (live): a setting was not sent, because the model does not take it.
        - `setting` (str): its name in `ModelSettings`.
    - `answer`: the model's answer is recorded; the event's node holds it.
        - `step` (int): which step of the run, from 1.
        - `calls` (int): how many tools it calls.
        - `prompt_tokens`, `cached_tokens`, `completion_tokens` (int or None): usage as the provider
          reported it.
        - `cost` (int or None): nanodollars; None where the price is unknown.
        - `model` (str, optional): which of several models answered.
        - `raw_tokens`, `observed_tokens` (int, optional): the prompt's messages and observations.
        - `began_at`, `first_token_at` (float, optional): when the first call for it began, and when
          the one that gave it had its first token, in seconds since the epoch; `seconds` (float,
          optional): from the first call's beginning to the answer.
        - `retries` (int, optional): how many calls for it failed; `retry_causes` (list of str,
          optional): why, of the last ones.
    - `file`: the model is not shown a file; the prompt names it instead.
        - `name`, `uri` (str): the file.
        - `reason` (str): why it is not shown.
    - `tool-start`: a call is about to run.
        - `call_id` (str): the call, also the handle for `recall`.
        - `tool` (str): the tool's name.
        - `arguments` (dict, optional): only live, what it is called with.
    - `tool-progress` (live): a tool tells how far a call is.
        - `call_id` (str): the call.
        - `done` (float): how far, in the tool's unit.
        - `total` (float, optional): the end, in the same unit.
        - `message` (str, optional): what it is doing.
    - `tool-finish`: a call has its result.
        - `call_id` (str): the call.
        - `tool` (str): the tool's name.
        - `outcome` (str): `ok`, `error`, `refused`, `interrupted` or `cancelled`.
        - `chars` (int): the result's length.
        - `cut` (bool): whether the prompt shows only a part of it.
        - `data` (dict, optional): what the tool tells programs; of `bash` the `exit_code` (int,
          negative for a signal) of a command that ended.
        - `result` (str, optional): only live, its text.
    - `note`: the runtime wrote a message into the log.
        - `source` (str): what it is about, such as `steer`, `background` or `recall`.
    - `activation`: the prompt is rewritten.
        - `cause` (str): `start`, `agent` (it changed), `model` (another one of several is in use),
          `messages`, `tokens`, `overflow`, `note`, `observed`, `price`, `late` or `idle`.
        - `left_out` (int): nodes that left the prompt.
        - `cut` (int): results that were shortened.
        - `tokens` (int): the prompt's size now, in our count.
        - `constraints_named` (int, optional): how many of the user's constraints are only named,
          because they do not fit their budget.
    - `memory` (live): the Observer or the Reflector begins to work.
        - `purpose` (str): `observe` or `reflect`.
        - `tokens` (int): how much it reads.
        - `again` (bool): whether a model replaces what rules wrote.
    - `observation`: an observation is recorded.
        - `id` (str): its id.
        - `level` (int): 0 for messages, 1 and more for condensed observations.
        - `first`, `last` (int): the nodes that it stands for.
        - `tokens` (int): its size.
        - `of` (int): the size of what it stands for.
        - `origin` (str): who wrote it: `model`, `rules` or `archive`.
        - `provisional` (bool): whether a model will write it again.
        - `again` (bool): whether it replaces a provisional one.
        - `why` (str): why it differs from what was requested; empty if it does not.
        - `calls`, `prompt_tokens`, `cached_tokens`, `completion_tokens`, `cost` (optional): what it
          used, as in `answer`.
    - `recall`: earlier messages were searched before a turn.
        - `found` (list of dict): `thread`, `node` and `call` of each.
        - `query` (int, optional): the node whose text was searched for.
        - `mode` (str, optional): `text`, `vectors` or `hybrid`.
        - `tokens` (int, optional): the size of the note.
        - `why` (str, optional): what failed, or that nothing fits; empty otherwise.
    - `plan`: a new version of the plan is recorded.
        - `version` (int): its number on the thread.
        - `phase` (str): the phase that it is in.
        - `iteration` (int): which round of its phases.
        - `pending`, `in_progress`, `completed`, `failed`, `skipped` (int): items of each status.
        - `plan` (Plan, optional): only live, the plan.
        - `followed` (list of str, optional): only live, the calls that its items may follow.
    - `question`: the run asks a person.
        - `id` (str): the question, for `Runtime.answer`.
        - `kind` (str): `single`, `multiple`, `text`, `approval`, `continue` or `interrupted`.
        - `call_id`, `tool` (str, optional): the call that asks, or is to be approved.
        - `role`, `task_key` (str, optional): the sub-agent that asks.
    - `run-suspend`: the run waits for a person, is paused, or its process is gone.
        - `status` (str): `suspended`.
        - `stop_reason` (str): why, such as `awaiting_user`, `paused` or `interrupted`.
        - `detail` (str): the same as a sentence.
    - `run-finish`: the run is over.
        - `status` (str): `succeeded`, `failed` or `cancelled`.
        - `stop_reason` (str): why, such as `completed` or `budget`.
        - `detail` (str): the same as a sentence; empty if there is nothing to add.

    Attributes:
        kind: one of the above; a kind marked "live" is not recorded.
        id: rises strictly within the thread, in commit order; 0 for events that are live only.
        node_id: the node that it is about; its content is read from the log.
        data: the fields above, by kind.
    """

    kind: EventKind
    thread_id: str
    run_id: str
    id: int = 0
    node_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
