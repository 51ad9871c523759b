"""Conversation memory: whole turns of one branch, within a budget."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_runtime import ConversationMemory, FileRef
from agent_runtime.agent import MemoryWindow, RolePrefix
from agent_runtime.errors import NotFound
from agent_runtime.files.references import FilePolicy
from agent_runtime.log.branch import node_row
from agent_runtime.log.branches import fork
from agent_runtime.messages import (
    AssistantMessage,
    LoggedMessage,
    Note,
    PromptMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    call_id,
    encode_result,
)
from agent_runtime.models.tokens import count_message
from agent_runtime_storage import CallDone, Commit, Finish, Lease, Store, UserStore, open_store
from tests.storage.helpers import begin

pytestmark = pytest.mark.backends("file")


@dataclass
class Talk:
    """A thread written as runs would write it, and its conversation memory."""

    store: UserStore
    thread_id: str = "talk"
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def memory(self) -> ConversationMemory:
        return ConversationMemory(self.store, self.thread_id)

    async def ask(self, text: str, *files: FileRef) -> Lease:
        """Start a run with a task and leave it running."""
        thread = await self.store.threads.ensure(self.thread_id)
        seq = thread.last_seq + 1
        row = node_row(UserMessage(text, files), seq=seq, parent_id=thread.head, activation_id=0)
        return await begin(
            self.store,
            f"{self.thread_id}-{next(self.numbers)}",
            self.thread_id,
            expect_head=thread.head,
            expect_seq=thread.last_seq,
            nodes=(row,),
            task_id=seq,
        )

    async def append(self, lease: Lease, message: LoggedMessage, *results: ToolResult) -> int:
        """Append a message under the head, with the results of its calls; return its node."""
        thread = await self.store.threads.get(self.thread_id)
        seq = thread.last_seq + 1
        row = node_row(message, seq=seq, parent_id=thread.head, activation_id=0)
        if not results:
            await self.store.runs.commit(lease, Commit(nodes=(row,), head=seq))
            return seq
        await self.store.runs.commit(lease, Commit(nodes=(row,)))
        done = tuple(
            CallDone(seq, i, one.outcome, encode_result(one), 5) for i, one in enumerate(results)
        )
        await self.store.runs.commit(
            lease, Commit(start=tuple((seq, i) for i in range(len(results))))
        )
        await self.store.runs.commit(lease, Commit(done=done, close=(seq,), head=seq))
        return seq

    async def use(self, lease: Lease, *answers: str) -> int:
        """Append an exchange with a call for each result."""
        seq = (await self.store.threads.get(self.thread_id)).last_seq + 1
        calls = tuple(ToolCall(call_id(seq, i), "look", {"at": i}) for i in range(len(answers)))
        results = [ToolResult(answer) for answer in answers]
        return await self.append(lease, AssistantMessage("", calls), *results)

    async def end(self, lease: Lease) -> None:
        await self.store.runs.commit(lease, Commit(finish=Finish("succeeded", "completed")))

    async def turn(self, question: str, answer: str, *uses: Sequence[str]) -> int:
        """Write a whole turn; return the node of its answer."""
        lease = await self.ask(question)
        for answers in uses:
            await self.use(lease, *answers)
        seq = await self.append(lease, AssistantMessage(answer))
        await self.end(lease)
        return seq

    async def texts(self, **options: Any) -> list[str]:
        """Return the texts of the history."""
        return texts(await self.memory.history(**options))


def texts(messages: Sequence[PromptMessage]) -> list[str]:
    """Return each message's text, or the tools that it calls."""
    return [message.text or "+".join(call.name for call in message.calls) for message in messages]


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Store]:
    """An open store."""
    store = await open_store(database_url)
    yield store
    await store.close()


@pytest.fixture
def talk(opened: Store) -> Talk:
    """A thread that does not exist yet."""
    return Talk(opened.of("ann"))


# Content


async def test_the_history_is_the_threads_turns(talk: Talk) -> None:
    await talk.turn("One?", "One.")
    await talk.turn("Two?", "Two.")

    history = await talk.memory.history()

    assert [(op.role, op.text) for op in history] == [
        ("user", "One?"),
        ("assistant", "One."),
        ("user", "Two?"),
        ("assistant", "Two."),
    ]


async def test_a_thread_without_messages_has_no_history(talk: Talk) -> None:
    await talk.store.threads.ensure("talk")
    assert await talk.memory.history() == []


async def test_another_owners_thread_is_not_found(talk: Talk, opened: Store) -> None:
    await talk.turn("One?", "One.")
    with pytest.raises(NotFound):
        await ConversationMemory(opened.of("bob"), "talk").history()


async def test_tool_calls_are_followed_by_their_results(talk: Talk) -> None:
    await talk.turn("Look.", "Seen.", ["red", "blue"], ["green"])

    history = await talk.memory.history()

    assert texts(history) == ["Look.", "look+look", "red", "blue", "look", "green", "Seen."]
    wanted = [call.id for op in history for call in op.calls]
    assert [op.call_id for op in history if op.role == "tool"] == wanted


async def test_steers_are_included_and_restatements_are_not(talk: Talk) -> None:
    lease = await talk.ask("Go.")
    await talk.use(lease, "red")
    await talk.append(lease, Note("The plan: go.", source="plan"))
    await talk.append(lease, Note("The user says: faster.", source="steer"))
    await talk.append(lease, AssistantMessage("Gone."))
    await talk.end(lease)
    assert await talk.texts() == ["Go.", "look", "red", "The user says: faster.", "Gone."]


# Limits


async def test_whole_turns_are_included_up_to_the_token_limit(talk: Talk) -> None:
    for number in range(5):
        await talk.turn(f"Question {number}?", f"Answer {number}.", ["a result of some words"])
    whole = await talk.memory.history()
    size = sum(map(count_message, whole[-4:]))

    for limit, turns in ((size, 1), (2 * size, 2), (2 * size - 1, 1), (5 * size, 5)):
        history = await talk.memory.history(max_token_limit=limit)
        assert history == whole[len(whole) - 4 * turns :]


async def test_a_newest_turn_over_the_budget_leaves_no_history(talk: Talk) -> None:
    await talk.turn("Small?", "Small.")
    await talk.turn("Large?", "Large.", ["many words " * 200])
    assert await talk.texts(max_token_limit=300) == []
    assert await talk.texts(max_token_limit=3000) != []


async def test_the_first_turn_that_does_not_fit_ends_the_history(talk: Talk) -> None:
    await talk.turn("One?", "One.")
    await talk.turn("Large?", "Large.", ["many words " * 200])
    await talk.turn("Three?", "Three.")
    assert await talk.texts(max_token_limit=100) == ["Three?", "Three."]
    assert await talk.texts(message_limit=4) == ["Three?", "Three."]


async def test_the_message_limit_splits_no_turn(talk: Talk) -> None:
    await talk.turn("One?", "One.")
    await talk.turn("Two?", "Two.", ["red"])
    for limit, left in ((6, 6), (5, 4), (4, 4), (3, 0), (0, 0)):
        assert len(await talk.memory.history(message_limit=limit)) == left


async def test_a_window_can_be_switched_off(talk: Talk) -> None:
    for number in range(4):
        await talk.turn(f"{number}?", f"{number}.")
    on, off = MemoryWindow(size=2), MemoryWindow(enabled=False, size=2)
    assert await talk.texts(window=on) == ["3?", "3."]
    assert len(await talk.texts(window=off)) == 8
    assert len(await talk.texts(window=off, message_limit=4)) == 4


async def test_only_as_much_of_a_long_thread_is_read_as_fits_the_limits(talk: Talk) -> None:
    for number in range(90):
        await talk.turn(f"{number}?", f"{number}.")
    everything = await talk.texts(max_token_limit=10**6)
    assert everything == [text for n in range(90) for text in (f"{n}?", f"{n}.")]
    assert await talk.texts(max_token_limit=10**6, message_limit=140) == everything[-140:]
    assert await talk.texts(message_limit=4) == everything[-4:]


async def test_a_turn_of_many_steps_is_included_whole_or_not_at_all(talk: Talk) -> None:
    await talk.turn("Before?", "Before.")
    await talk.turn("Long?", "Done.", *[[f"result {n}"] for n in range(80)])
    whole = await talk.texts(max_token_limit=10**6)
    assert (whole[0], whole[2], whole[-1], len(whole)) == ("Before?", "Long?", "Done.", 164)
    assert await talk.texts(max_token_limit=10**6, message_limit=100) == []


# Branches


async def test_siblings_use_none_of_the_branchs_budget(talk: Talk) -> None:
    first = await talk.turn("One?", "One.")
    second = await talk.turn("Two?", "Two.")
    for number in range(30):
        await fork(talk.store, "talk", first)
        await talk.turn(f"Else {number}?", f"Else {number}.")
    await fork(talk.store, "talk", second)

    assert await talk.texts(message_limit=4) == ["One?", "One.", "Two?", "Two."]
    assert await talk.texts(max_token_limit=60) == ["One?", "One.", "Two?", "Two."]


async def test_the_history_ends_before_the_current_message(talk: Talk) -> None:
    first = await talk.turn("One?", "One.")
    await talk.turn("Two?", "Two.")
    assert await talk.texts(current_message_id=first) == ["One?", "One."]


async def test_after_a_regenerated_root_only_the_new_branch_is_included(talk: Talk) -> None:
    old = await talk.turn("One?", "One.")
    await fork(talk.store, "talk", None)
    await talk.turn("One, again?", "One, again.")
    assert await talk.texts() == ["One, again?", "One, again."]
    await fork(talk.store, "talk", old)
    assert await talk.texts() == ["One?", "One."]


# Unfinished turns


async def test_a_message_without_its_answer_is_excluded(talk: Talk) -> None:
    await talk.turn("One?", "One.")
    lease = await talk.ask("Two?")
    assert await talk.texts() == ["One?", "One."]
    await talk.use(lease, "red")
    assert await talk.texts() == ["One?", "One."]
    await talk.append(lease, AssistantMessage("Two."))
    await talk.end(lease)
    assert await talk.texts() == ["One?", "One.", "Two?", "look", "red", "Two."]


async def test_a_long_unfinished_turn_hides_none_before_it(talk: Talk) -> None:
    answer = await talk.turn("One?", "One.")
    lease = await talk.ask("Two?")
    for number in range(70):
        await talk.use(lease, f"result {number}")
    assert await talk.texts(message_limit=20) == ["One?", "One."]
    assert await talk.texts(message_limit=20, current_message_id=answer + 9) == ["One?", "One."]
    assert await talk.texts(current_message_id=answer) == ["One?", "One."]


async def test_a_finished_empty_answer_is_included(talk: Talk) -> None:
    await talk.turn("Say nothing.", "")
    assert [(op.role, op.text) for op in await talk.memory.history()] == [
        ("user", "Say nothing."),
        ("assistant", ""),
    ]


async def test_the_history_of_a_user_message_ends_before_it(talk: Talk) -> None:
    answer = await talk.turn("One?", "One.")
    await talk.turn("Two?", "Two.")
    assert await talk.texts(current_message_id=answer + 1) == ["One?", "One."]
    assert await talk.texts(current_message_id=1) == []


# Files and text


async def test_one_broken_file_never_drops_the_turn(talk: Talk) -> None:
    good = FileRef("image", "https://example.org/a.png", "image/png", "a.png")
    lost = FileRef("document", "upload:0190-nobody-has-it", name="b.pdf")
    lease = await talk.ask("Look at these.", good, lost, FileRef("audio", "what is this"))
    await talk.append(lease, AssistantMessage("Seen."))
    await talk.end(lease)

    first, second = await talk.memory.history(max_token_limit=10_000)

    assert (first.files, second.text) == ((good,), "Seen.")
    assert first.text.startswith("Look at these.\n")
    assert "b.pdf" in first.text and "not there" in first.text


async def test_a_policy_selects_the_files_to_show(talk: Talk) -> None:
    image = FileRef("image", "https://example.org/a.png", "image/png", "a.png")
    lease = await talk.ask("Look.", image)
    await talk.append(lease, AssistantMessage("Seen."))
    await talk.end(lease)

    policy = FilePolicy(kinds=("document",))
    first, _ = await talk.memory.history(max_token_limit=10_000, files=policy)

    assert first.files == () and "a.png" in first.text


async def test_in_plain_text_each_message_starts_with_its_role(talk: Talk) -> None:
    await talk.turn("One?", "One.", ["red"])
    await talk.turn("Two?", "Two.")
    assert await talk.memory.history_text() == (
        "Human: One?\nAssistant: One.\nHuman: Two?\nAssistant: Two."
    )
    names = RolePrefix("Customer", "Support")
    text = await talk.memory.history_text(role_prefix=names, message_limit=3)
    assert text == "Customer: Two?\nSupport: Two."


async def test_tool_results_do_not_count_toward_limits_of_plain_text(talk: Talk) -> None:
    await talk.turn("One?", "One.", ["many words " * 200])
    assert await talk.memory.history(max_token_limit=50) == []
    assert await talk.memory.history_text(max_token_limit=50) == "Human: One?\nAssistant: One."


async def test_plain_text_is_not_charged_for_images(talk: Talk) -> None:
    images = [FileRef("image", f"https://example.org/{n}.png", "image/png") for n in range(2)]
    lease = await talk.ask("My name is Ada.", *images)
    await talk.append(lease, AssistantMessage("Hello Ada."))
    await talk.end(lease)
    text = await talk.memory.history_text(max_token_limit=2_000)
    assert "My name is Ada." in text and "example.org/1.png" in text
    assert (await talk.memory.history(max_token_limit=2_000)).left_out == 1
    named = await talk.memory.history(max_token_limit=2_000, takes=["document"])
    assert (named[0].files, named.left_out) == (tuple(images), 0)
