"""Every error that the runtime raises on purpose.

AgentRuntimeError                   .message says what and why, .cure what to do
├── ConfigError                     a setting, a model name or an agent is not usable
├── StoreError                      see agent_runtime_storage.contract.errors
│   ├── UnknownScheme
│   ├── StoreUnavailable: StoreBusy, StoreReadOnly, StoreFull, NotADatabase
│   │   ├── ObjectsUnavailable
│   │   └── StoreInDoubt
│   ├── MigrationError
│   ├── NotFound: ThreadArchived
│   ├── CorruptThread: ObjectLost
│   ├── CorruptDocument: UnknownVersion
│   ├── DimensionMismatch
│   ├── InvalidVector
│   ├── InvalidExport
│   └── Conflict: ThreadBusy, ThreadExists, LeaseLost, RunCancelled, InboxWaiting, BudgetExceeded
│       ├── InboxFull               too many messages wait to be read
│       ├── QuestionClosed          it was answered before, has expired, or its run is over
│       └── QuestionsOpen           a run cannot continue before its questions are answered
├── ModelError                      a model call failed for good
│   ├── ModelAuthError              the key is missing or wrong, or may not use the model
│   ├── ModelNotFound               the provider does not know the model
│   ├── ModelRejected               the provider refuses the request or its content
│   ├── ModelUnavailable            unreachable, overloaded or rate-limited after all retries
│   │   └── ModelStalled            no first byte, or silence, beyond the deadline
│   ├── ModelOverflow               the provider says that the prompt is too long
│   ├── ModelProtocolError          the answer makes no sense: a broken stream, an empty answer
│   └── RealModelForbidden          a real call while they are switched off
├── RuntimeClosed                   the runtime is closing, and begins no more runs
├── NoOutput                        the output of a task that was not completed was required
├── WrongLoop                       a runtime is used from another event loop than its own
├── PromptTooLarge                  what must be sent does not fit the window
├── InvariantError                  a prompt breaks a promise of ours: a bug, please report it
├── InvalidAnswer                   an answer is not what its question asks for
├── InvalidFile                     a file cannot be stored: empty, too large, or not readable
├── ToolError                       raise it in a tool to tell the model what went wrong
│   └── InvalidPlan                 a plan, or a change of one, is not valid
├── McpServerFailed                 an MCP server cannot be used: it does not start, or it lies
├── NodeFailed                      a node of a workflow failed, or its effect is unverified
├── WorkflowDiverged                a workflow's code asks for other nodes than it did before
└── UnsupportedTask                 the offline model cannot do this task
"""

from __future__ import annotations

from agent_runtime_config.errors import AgentRuntimeError, ConfigError
from agent_runtime_storage.contract.errors import (
    BudgetExceeded,
    Conflict,
    CorruptDocument,
    CorruptThread,
    DimensionMismatch,
    InboxFull,
    InboxWaiting,
    InvalidExport,
    InvalidVector,
    LeaseLost,
    MigrationError,
    NotADatabase,
    NotFound,
    ObjectLost,
    ObjectsUnavailable,
    QuestionClosed,
    RunCancelled,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreInDoubt,
    StoreReadOnly,
    StoreUnavailable,
    ThreadArchived,
    ThreadBusy,
    ThreadExists,
    UnknownScheme,
    UnknownVersion,
)

__all__ = [
    "AgentRuntimeError",
    "BudgetExceeded",
    "ConfigError",
    "Conflict",
    "CorruptDocument",
    "CorruptThread",
    "DimensionMismatch",
    "InboxFull",
    "InboxWaiting",
    "InvalidAnswer",
    "InvalidExport",
    "InvalidFile",
    "InvalidPlan",
    "InvalidVector",
    "InvariantError",
    "LeaseLost",
    "McpServerFailed",
    "MigrationError",
    "ModelAuthError",
    "ModelError",
    "ModelNotFound",
    "ModelOverflow",
    "ModelProtocolError",
    "ModelRejected",
    "ModelStalled",
    "ModelUnavailable",
    "NoOutput",
    "NodeFailed",
    "NotADatabase",
    "NotFound",
    "ObjectLost",
    "ObjectsUnavailable",
    "PromptTooLarge",
    "QuestionClosed",
    "QuestionsOpen",
    "RealModelForbidden",
    "RunCancelled",
    "RuntimeClosed",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreInDoubt",
    "StoreReadOnly",
    "StoreUnavailable",
    "ThreadArchived",
    "ThreadBusy",
    "ThreadExists",
    "ToolError",
    "UnknownScheme",
    "UnknownVersion",
    "UnsupportedTask",
    "WorkflowDiverged",
    "WrongLoop",
]


class ModelError(AgentRuntimeError):
    """A model call failed for good.

    Cause: every retry failed, or a retry cannot help.
    Cure: read the message; the subclass says which kind of failure it is.

    Attributes:
        lost: how many attempts may have been billed without a report of their usage.
    """

    def __init__(self, message: str, *, cure: str = "", lost: int = 0) -> None:
        super().__init__(message, cure=cure)
        self.lost = lost


class ModelAuthError(ModelError):
    """The key is missing or wrong, or it may not use this model.

    Cause: the provider's key variable is unset or misspelt, the key was revoked, its quota is used
    up, or the package that signs the provider's requests is not installed.
    Cure: set the variable or install the extra that the message names, or use a key or a model with
    quota left.
    """


class ModelNotFound(ModelError):
    """The provider does not know the model, or nobody knows the provider.

    Cause: the model's name is misspelt, or the base URL leads to another server.
    Cure: write the name as `provider/model`, such as `anthropic/claude-sonnet-4-5`.

    Attributes:
        model: the name.
    """

    def __init__(self, message: str, *, cure: str = "", lost: int = 0, model: str = "") -> None:
        super().__init__(message, cure=cure, lost=lost)
        self.model = model


class ModelRejected(ModelError):
    """The provider refuses the request, or its content policy does.

    Cause: a parameter that the model does not take, or content that a filter blocks.
    Cure: read what the provider says, and change the request; it is not retried.
    """


class ModelUnavailable(ModelError):
    """The provider is unreachable, overloaded or rate-limited, after all retries.

    Cause: the network, the provider's status, or more requests than the rate limit allows.
    Cure: wait and resume the run, lower the number of runs at a time, or raise the limit.
    """


class ModelStalled(ModelUnavailable):
    """No first byte came, or the stream fell silent, for longer than the deadline.

    Cause: a slow or broken server, or a model that thinks for longer than the deadline.
    Cure: resume the run, or raise `AGENT_RUNTIME_FIRST_BYTE_TIMEOUT` or
    `AGENT_RUNTIME_IDLE_TIMEOUT`.
    """


class ModelOverflow(ModelError):
    """The provider says that the prompt is too long for the model.

    Cause: the model's real window is smaller than the one the runtime knows.
    Cure: set `AGENT_RUNTIME_CONTEXT_WINDOW` to the real window.
    """


class ModelProtocolError(ModelError):
    """The answer makes no sense, after all retries: a broken stream, an empty answer.

    Cause: a server that does not speak its protocol, or a script of answers that is used up.
    Cure: resume the run, or use another model.
    """


class RealModelForbidden(ModelError):
    """A real model was called while `AGENT_RUNTIME_FORBID_REAL_MODELS` forbids it.

    Cause: a test, or a program started with that variable, uses a model that is not on this
    machine.
    Cure: use a scripted model or a base URL on this machine, or unset the variable.
    """


class RuntimeClosed(AgentRuntimeError):
    """The runtime is closed, or about to be: it begins no more runs.

    Cause: `Runtime.close` or `Runtime.drain` was called, or the context of `Runtime.open` was left.
    Cure: open another runtime; `resume` and `sweep` continue there what was interrupted.
    """


class NoOutput(AgentRuntimeError):
    """The output of a run was required, but its task was not completed.

    Cause: the run waits for a person, was cancelled or paused, or reached a limit.
    Cure: read the result's `status`, `stop_reason` and `questions`; `resume` continues the run.
    """


class WrongLoop(AgentRuntimeError):
    """A runtime is used from another event loop than the one that it was opened on.

    Cause: a second `asyncio.run`, another thread's event loop, or `run_sync` where a loop runs.
    Cure: open a runtime in each event loop; in a coroutine `await` the async method.
    """


class PromptTooLarge(AgentRuntimeError):
    """What has to be sent does not fit the context window, and may not be cut further.

    Cause: one message, the system prompt or the tool schemas are larger than the window.
    Cure: shorten what the message names, or use a model with a larger window.
    """


class InvariantError(AgentRuntimeError):
    """A prompt breaks one of the promises that the prompt builder makes; always a bug.

    Cause: a bug in the runtime; the request was not sent.
    Cure: report it with the message; the log is unharmed, and the run can be resumed.
    """


class InvalidFile(AgentRuntimeError):
    """A file cannot be stored: it is empty, too large, or cannot be read.

    Cause: a wrong path, an empty file, or one above `AGENT_RUNTIME_MAX_FILE_BYTES`.
    Cure: check the path, or raise the limit.
    """


class InvalidAnswer(AgentRuntimeError):
    """An answer is not what its question asks for; nothing was written.

    Cause: a text where a choice is asked for, or a choice that the question does not have.
    Cure: answer with one of the choices that the message lists.
    """


class QuestionsOpen(Conflict):
    """The run waits for a person, and cannot continue before its questions are answered.

    Cause: `resume` was called before every question had an answer.
    Cure: answer the questions (`Runtime.answer`, `agent-runtime answer`), or cancel the run.

    Attributes:
        questions: their ids.
    """

    def __init__(self, message: str, *, questions: tuple[str, ...], cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.questions = questions


class ToolError(AgentRuntimeError):
    """Raised inside a tool: its text goes to the model as the call's error result.

    Cause: a tool cannot do what the model asked for.
    Cure: none is needed: the model reads the text and tries something else.
    """


class InvalidPlan(ToolError):
    """A plan, or a change of one, is not valid; nothing of it was applied.

    Cause: a status that may not follow the present one, a missing step, or a circle of
    dependencies.
    Cure: none is needed: the model reads what is allowed and writes the plan again.
    """


class McpServerFailed(AgentRuntimeError):
    """An MCP server of an agent cannot be used; a run that needs it does not begin.

    Cause: it cannot be started or reached, asks for a login, does not speak the protocol, or
    describes a tool by a schema that is not valid.
    Cure: what the message says; `agent-runtime mcp test NAME` shows more.
    """


class NodeFailed(AgentRuntimeError):
    """A node of a workflow failed.

    Cause: its function raised, its run failed, or it was interrupted and may not run twice.
    Cure: check what it did; catch `NodeFailed` in the workflow, or resume the run.

    Attributes:
        node: its name.
        iteration: which of its iterations, from 1.
        outcome: `error`; or `interrupted`: it was started, nobody saw it end, and it may not run
            again because it is not idempotent.
        stop_reason: why the node's own run stopped; empty if it had none.
    """

    def __init__(
        self,
        message: str,
        *,
        cure: str = "",
        node: str = "",
        iteration: int = 1,
        outcome: str = "error",
        stop_reason: str = "",
    ) -> None:
        super().__init__(message, cure=cure)
        self.node = node
        self.iteration = iteration
        self.outcome = outcome
        self.stop_reason = stop_reason


class WorkflowDiverged(AgentRuntimeError):
    """A resumed workflow's code asks for other nodes, or gives them other input, than before.

    Cause: the code was changed while a run of it was unfinished, or it depends on time or chance.
    Cure: resume with the code that began the run, or start a new run.
    """


class UnsupportedTask(AgentRuntimeError):
    """The offline model cannot do this task; a language model has to be set.

    Cause: no model is set, and the task is not a survey of a folder.
    Cure: set `AGENT_RUNTIME_MODEL` and its provider's key.
    """


def text_of(error: BaseException) -> str:
    """Return what an exception says, whatever its `__str__` does."""
    # An error class of a tool's author may be broken.
    try:
        return str(error)
    except BaseException as failed:
        # Also `SystemExit`: the text of an error must not end anything.
        return f"(its text cannot be shown: __str__ raised {type(failed).__name__})"
