"""What the API takes and returns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from agent_runtime.messages import AssistantMessage, Note, ToolCall
from agent_runtime.models.cost import NANO
from agent_runtime.run.sweep import ContinuationWay, continuation_of
from agent_runtime.run.threads.access import ThreadMessage
from agent_runtime.run.tree import TreeRun
from agent_runtime_storage import Amount, Budget, Run, Thread, UserStore
from agent_runtime_storage.contract.records.log import RunStatus, StopReason
from agent_runtime_storage.contract.records.usage import UsageTotal

MOST_ON_A_PAGE = 200
Limit = Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE, description="The most of a page.")]
# Postgres takes no zero byte in a text.
Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]
Text = Annotated[str, Field(min_length=1)]
# The most that the setting allows; the store refuses what is longer than the setting.
Title = Annotated[str, Field(max_length=10_000)]
Json = dict[str, Any]


class Input(BaseModel):
    """What a client sends: nothing that is not known."""

    model_config = ConfigDict(extra="forbid")


class Output(BaseModel):
    """What the service returns, made of a row."""

    model_config = ConfigDict(from_attributes=True)


class PageQuery(Input):
    """Which page of a list."""

    limit: Limit = 50
    cursor: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None, description="`next_cursor` of the page before; none for the first."
    )


class Page(Output):
    """A page of a list."""

    next_cursor: str | None = Field(description="The cursor of the next page; null on the last.")


class ThreadOut(Output):
    """A conversation, with the node that it continues from."""

    id: str
    title: str
    metadata: Json
    head: int | None
    last_event: int
    active_run: str | None
    created_at: float
    updated_at: float


class ThreadPage(Page):
    """Threads, the most recently updated first."""

    threads: list[ThreadOut]

    @classmethod
    def of(cls, rows: list[Thread], next_cursor: str | None) -> ThreadPage:
        """Return a page of rows."""
        return cls(threads=[ThreadOut.model_validate(row) for row in rows], next_cursor=next_cursor)


class ThreadsQuery(PageQuery):
    """Which threads."""

    children: bool = Field(default=False, description="Whether with those of sub-agents.")


class NewThread(Input):
    """A thread to make."""

    id: Name | None = Field(default=None, description="Its id; by default a new one.")
    title: Title = ""
    metadata: Json = Field(default_factory=dict[str, Any])


class ThreadChange(Input):
    """What to change of a thread."""

    title: Title | None = None
    metadata: Json | None = Field(default=None, description="Keys to set; null removes one.")


class Fork(Input):
    """Where a thread continues."""

    node_id: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        description="The node; null for the place before the first."
    )


class Edit(Input):
    """Which message of the user is to be replaced."""

    node_id: Annotated[int, Field(ge=1, le=2**53)]


class DeleteQuery(Input):
    """How to delete."""

    force: bool = Field(default=False, description="Whether to cancel runs at work first.")


class Deleted(Output):
    """What was deleted."""

    threads: list[str] = Field(description="The thread, and those of its sub-agents.")


class FileOut(Output):
    """A file of a thread, by reference."""

    id: str
    uri: str
    kind: str
    name: str
    media_type: str
    size: int


class FileList(Output):
    """The files of a thread, the oldest first."""

    files: list[FileOut]


class UploadQuery(Input):
    """What is known of a file that is uploaded."""

    name: Annotated[str, Field(min_length=1, max_length=200)]


class CallOut(Output):
    """A call of a tool, with its result."""

    id: str
    tool: str
    arguments: Json
    outcome: str | None = Field(description="Null while it is not done.")
    result: str | None


class MessageOut(Output):
    """A message of a thread, or an exchange of an answer with its calls."""

    node_id: int
    parent_id: int | None
    run_id: str | None
    role: Literal["user", "assistant", "note"]
    text: str
    source: str | None = Field(default=None, description="Of a note, what it is about.")
    files: list[str] = Field(default_factory=list[str])
    calls: list[CallOut] = Field(default_factory=list[CallOut])
    created_at: float

    @classmethod
    def of(cls, message: ThreadMessage) -> MessageOut:
        """Return a message as the API shows it."""
        logged = message.message
        made: tuple[ToolCall, ...] = logged.calls if isinstance(logged, AssistantMessage) else ()
        calls = [
            CallOut(
                id=call.id,
                tool=call.name,
                arguments=call.arguments,
                outcome=result and result.outcome,
                result=result and result.text,
            )
            for call, result in zip(made, message.results, strict=True)
        ]
        return cls(
            node_id=message.node_id,
            parent_id=message.parent_id,
            run_id=message.run_id,
            role=logged.type,
            text=logged.text,
            source=logged.source if isinstance(logged, Note) else None,
            files=[] if isinstance(logged, Note) else [one.uri for one in logged.files],
            calls=calls,
            created_at=message.created_at,
        )


class MessagePage(Page):
    """Messages of a thread's branch, the newest page first, each page oldest first."""

    messages: list[MessageOut]


class Amounts(Output):
    """Tokens and dollars; null for no limit."""

    tokens: int | None
    usd: float | None

    @classmethod
    def of(cls, amount: Amount | Budget) -> Amounts:
        """Return an amount in dollars."""
        return cls(tokens=amount.tokens, usd=None if amount.cost is None else amount.cost / NANO)


class RunOut(Output):
    """A run: one execution of an agent or a workflow on a thread."""

    id: str
    thread_id: str
    parent_run_id: str | None
    root_run_id: str
    agent: str
    status: RunStatus
    stop_reason: StopReason | None
    detail: str
    output: Any
    steps: int
    max_steps: int
    cancel_requested: bool
    budget: Amounts = Field(description="On the root: of the whole tree.")
    settled: Amounts = Field(description="On the root: what providers reported.")
    unsettled: Amounts = Field(description="On the root: the bound of what they did not.")
    created_at: float
    updated_at: float
    finished_at: float | None
    way_on: ContinuationWay | None = Field(
        description="How it continues if nobody works on it: by `resume`, after an `answer` to a "
        "question of its tree, with its `root`, or, a background `task`, by a resume with the "
        "agent that began it. None while it is at work, and once it is over."
    )

    @classmethod
    async def of(cls, store: UserStore, run: Run) -> RunOut:
        """Return a run as the API shows it."""
        return cls(
            id=run.id, thread_id=run.thread_id, parent_run_id=run.parent_run_id,
            root_run_id=run.root_run_id, agent=run.agent, status=run.status,
            stop_reason=run.stop_reason, detail=run.detail,
            output=orjson.loads(run.output) if run.output else None,
            steps=run.steps, max_steps=run.max_steps, cancel_requested=run.cancel_requested,
            budget=Amounts.of(run.budget), settled=Amounts.of(run.settled),
            unsettled=Amounts.of(run.unsettled), created_at=run.created_at,
            updated_at=run.updated_at, finished_at=run.finished_at,
            way_on=await continuation_of(store, run),
        )  # fmt: skip


class RunPage(Page):
    """Runs, the newest first."""

    runs: list[RunOut]


class RunsQuery(PageQuery):
    """Which runs."""

    thread_id: Name | None = None
    status: RunStatus | None = None


class RunToStart(Input):
    """A run to start."""

    agent: Name | None = Field(default=None, description="Its name; by default the first.")
    task: Text | None = Field(
        default=None, description="None answers the user's message at the thread's head (again)."
    )
    thread_id: Name | None = Field(default=None, description="By default a new thread.")
    files: Annotated[list[Name], Field(max_length=100)] = Field(
        default_factory=list, description="The `uri`s of uploaded files."
    )
    user_context: Json = Field(
        default_factory=dict, description="What tools may know of the user; stored with the run."
    )
    queue: bool = Field(
        default=False,
        description="Leave it to a worker (`agent-runtime worker`) instead of "
        "running it in the service.",
    )
    at: AwareDatetime | None = Field(
        default=None, description="With `queue`: when it may begin; by default now."
    )
    priority: float = Field(
        default=1.0, ge=0.001, le=1000,
        description="With `queue`: how many turns it is worth; others of its user wait longer.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _only_queued(self) -> RunToStart:
        if not self.queue and (self.at is not None or self.priority != 1.0):
            raise ValueError("`at` and `priority` are for runs with `queue`")
        return self


class Regenerate(Input):
    """How to answer a message again."""

    agent: Name | None = Field(default=None, description="Its name; by default the first.")
    user_context: Json = Field(
        default_factory=dict, description="What tools may know of the user; stored with the run."
    )


class Started(Output):
    """A run that is recorded, and at work unless it is queued."""

    run_id: str
    thread_id: str


class Steer(Input):
    """A message to a run."""

    text: Text


class Resume(Input):
    """How to continue a run: what becomes of interrupted calls, by tool or id."""

    rerun: list[Name] = Field(default_factory=list)
    accept: Json = Field(default_factory=dict)
    fail: dict[str, str] = Field(default_factory=dict)


class BudgetChange(Input):
    """Limits of a run and its sub-agents; one that is left out stays, null lifts it."""

    tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    usd: Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)] | None = None


class Reached(Output):
    """The runs that were reached."""

    run_ids: list[str]


class TreeOut(Output):
    """A run and the runs below it."""

    run_id: str
    thread_id: str
    agent: str
    status: RunStatus
    stop_reason: StopReason | None
    detail: str
    alive: bool
    steps: int
    usage: UsageOut
    created_at: float
    duration: float
    task_key: str
    children: list[TreeOut]

    @classmethod
    def of(cls, run: TreeRun) -> TreeOut:
        """Return a tree as the API shows it."""
        return cls.model_validate(
            {
                **{name: getattr(run, name) for name in cls.model_fields},
                "usage": UsageOut.of(run.usage),
                "children": [cls.of(one) for one in run.children],
            }
        )


class UsageOut(Output):
    """What calls of models used."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    usd: float | None = Field(description="Null where a price is unknown.")

    @classmethod
    def of(cls, total: UsageTotal) -> UsageOut:
        """Return sums as the API shows them."""
        usd = None if total.unpriced_calls else total.cost / NANO
        return cls(
            calls=total.calls, prompt_tokens=total.prompt_tokens,
            cached_tokens=total.cached_tokens, completion_tokens=total.completion_tokens, usd=usd,
        )  # fmt: skip


class UsageByPurpose(Output):
    """Usage in total, and by what it was for."""

    total: UsageOut
    by_purpose: dict[str, UsageOut]

    @classmethod
    def of(cls, parts: dict[str, UsageTotal]) -> UsageByPurpose:
        """Return sums by purpose as the API shows them."""
        total = UsageOut.of(UsageTotal.of(parts.values()))
        return cls(total=total, by_purpose={name: UsageOut.of(one) for name, one in parts.items()})


class SpendingOut(Output):
    """What was spent today (UTC)."""

    spent: Amounts
    reserved: Amounts
    ends_at: float | None


class EventOut(Output):
    """An event of a thread."""

    thread_id: str
    id: int
    run_id: str | None
    kind: str
    node_id: int | None
    data: Json
    created_at: float


class EventsQuery(Input):
    """Where a stream of events begins."""

    cursor: Annotated[str, Field(max_length=60_000)] | None = Field(
        default=None, description="The id of the last event; `Last-Event-ID` wins over it."
    )
    live: bool = Field(
        default=False,
        description="Also the events that are not recorded, with the id 0: the pieces of an "
        "answer while a model writes it, of runs that work in this process.",
    )


class Swept(Output):
    """What a sweep did and found, by the ids of runs."""

    interrupted: list[str]
    ended: list[str]
    resumable: list[str]
    tasks: list[str]
