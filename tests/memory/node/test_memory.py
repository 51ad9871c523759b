"""Node memory: one document by app, conversation and node; whole turns of one branch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from agent_runtime import FileRef, NodeMemory
from agent_runtime.errors import ConfigError, CorruptDocument, UnknownVersion
from agent_runtime.memory.node.document import NodeMessage
from agent_runtime.memory.node.memory import latest
from agent_runtime.messages import PromptMessage
from agent_runtime.models.tokens import count_message, count_text
from agent_runtime_storage import NewFile, Store, UserStore
from agent_runtime_storage.contract.documents import Documents
from agent_runtime_storage.drivers.protocol import Driver
from agent_runtime_storage.store import SqlStore
from agent_runtime_storage.urls import open_driver
from tests.memory.node.parts import KEY, add, ann, documents, keys, node, opened, put, say, texts

__all__ = ["ann", "documents", "opened"]

pytestmark = pytest.mark.backends("file")
in_a_folder = pytest.mark.parametrize("opened", ["folder"], indirect=True)

# From the README of Dify's memory.
SEED: dict[str, Any] = {
    "version": 1,
    "messages": [
        {
            "message_id": "msg-001",
            "parent_message_id": None,
            "role": "user",
            "content": "Analyze this image",
            "files": [
                {
                    "type": "image",
                    "transfer_method": "local_file",
                    "upload_file_id": "file-uuid-123",
                    "belongs_to": "user",
                }
            ],
            "token_count": 15,
            "created_at": "2026-01-07T10:00:00Z",
        },
        {
            "message_id": "msg-002",
            "parent_message_id": "msg-001",
            "role": "assistant",
            "content": "This is a landscape image...",
            "files": [],
            "token_count": 50,
            "created_at": "2026-01-07T10:00:01Z",
        },
    ],
}


# Keys


async def test_two_nodes_of_a_conversation_have_separate_memories(ann: UserStore) -> None:
    await say(node(ann, "one"), "a")
    assert await node(ann, "two").history(latest) == []
    assert texts(await node(ann, "one").history(latest)) == ["a?", "a."]


@in_a_folder
async def test_a_node_in_two_conversations_or_apps_has_separate_memories(ann: UserStore) -> None:
    await say(node(ann), "a")
    assert await node(ann, talk="another").history(latest) == []
    assert await NodeMemory(ann, "another", "talk", "node").history(latest) == []


async def test_another_owner_has_a_separate_memory(opened: Store, ann: UserStore) -> None:
    await say(node(ann), "a")
    other = node(opened.of("bob"))
    assert await other.history(latest) == []
    await say(other, "b")
    assert texts(await node(ann).history(latest)) == ["a?", "a."]


UNSAFE = ("..", ".", "../talk", "a/b", "/etc", "a\\b", "a b", "a\n", "a\0", "é", "#1", "x" * 129)


@in_a_folder
@pytest.mark.parametrize("name", ["app_id", "conversation_id", "node_id"])
async def test_an_id_that_is_unsafe_as_a_path_is_refused_by_name(ann: UserStore, name: str) -> None:
    def memory(value: str) -> NodeMemory:
        ids = {"app_id": "app", "conversation_id": "talk", "node_id": "node"} | {name: value}
        return NodeMemory(ann, ids["app_id"], ids["conversation_id"], ids["node_id"])

    for unsafe in UNSAFE:
        with pytest.raises(ConfigError, match=f"The {name} .* cannot be a part"):
            memory(unsafe)
    with pytest.raises(ConfigError, match=f"no {name}"):
        memory("")
    assert memory("0190-ab.c:d@e=f+g_h")


async def test_a_missing_object_store_names_the_setting(database_url: str) -> None:
    driver: Driver = await open_driver(database_url)
    with pytest.raises(ConfigError) as caught:
        node(SqlStore(driver).of("ann"))
    assert "AGENT_RUNTIME_OBJECT_STORE_URL" in caught.value.cure
    await driver.close()


# The document


async def test_a_document_in_difys_format_round_trips(ann: UserStore, documents: Documents) -> None:
    await put(documents, json.dumps(SEED).encode())

    memory = node(ann)
    first, second = await memory.history("msg-002", max_token_limit=10_000)
    assert (first.role, first.text.splitlines()[0]) == ("user", "Analyze this image")
    assert second == PromptMessage("assistant", "This is a landscape image...")
    await memory.add_messages("msg-004", "msg-002", user_content="More?", assistant_content="No.")
    await memory.flush()

    stored = await documents.read(KEY)
    assert stored is not None
    document = json.loads(stored.data)
    assert document["version"] == 1 and document["messages"][:2] == SEED["messages"]
    assert texts(await memory.history("msg-004", max_token_limit=10_000))[1:] == [
        "This is a landscape image...",
        "More?",
        "No.",
    ]


@in_a_folder
async def test_written_documents_have_difys_format(ann: UserStore, documents: Documents) -> None:
    memory = node(ann)
    image = FileRef("image", "upload:0190-abc")
    made = FileRef("document", "tool:0190-def")
    await memory.add_messages(
        "m1",
        None,
        user_content="Analyze this image",
        user_files=[image],
        assistant_content="A landscape.",
        assistant_files=[made],
    )
    await memory.flush()

    stored = await documents.read(KEY)
    assert stored is not None
    document = json.loads(stored.data)
    user, assistant = document["messages"]
    assert document.keys() == SEED.keys()
    assert user.keys() == assistant.keys() == SEED["messages"][0].keys()
    assert user["files"][0] == {
        "type": "image",
        "transfer_method": "local_file",
        "upload_file_id": "0190-abc",
        "belongs_to": "user",
    }
    assert assistant["files"][0]["tool_file_id"] == "0190-def"
    assert assistant["files"][0]["belongs_to"] == "assistant"
    assert (user["parent_message_id"], assistant["parent_message_id"]) == (None, "m1:user")
    assert assistant["message_id"] == "m1"
    assert assistant["token_count"] == count_text("A landscape.")
    assert user["created_at"].endswith("Z")


@in_a_folder
async def test_unknown_fields_are_preserved(ann: UserStore, documents: Documents) -> None:
    more: dict[str, Any] = {
        **SEED,
        "tenant": "x",
        "messages": [{**message, "rating": 5} for message in SEED["messages"]],
    }
    await put(documents, json.dumps(more).encode())
    await say(node(ann), "m9")

    stored = await documents.read(KEY)
    assert stored is not None
    document = json.loads(stored.data)
    assert document["tenant"] == "x"
    assert [message.get("rating") for message in document["messages"]] == [5, 5, None, None]


DAMAGED = {
    "empty": b"",
    "cut": json.dumps(SEED).encode()[:-5],
    "no object": b"[]",
    "no version": b'{"messages": []}',
    "no messages": b'{"version": 1}',
    "a message of no role": b'{"version": 1, "messages": [{"message_id": "a"}]}',
    "binary": bytes(range(256)),
    "deep": b"[" * 100_000,
}


@in_a_folder
@pytest.mark.parametrize("how", DAMAGED)
async def test_a_corrupt_document_is_reported_and_never_overwritten(
    ann: UserStore, documents: Documents, how: str
) -> None:
    await put(documents, DAMAGED[how])
    memory = node(ann)
    with pytest.raises(CorruptDocument) as caught:
        await memory.history(latest)
    assert KEY in caught.value.message and caught.value.cure
    with pytest.raises(CorruptDocument):
        await say(memory, "m1")
    stored = await documents.read(KEY)
    assert stored is not None and stored.data == DAMAGED[how]


@pytest.mark.parametrize("version", [2, 0, "1", 1.5, None])
async def test_a_document_of_another_version_is_reported_and_never_overwritten(
    ann: UserStore, documents: Documents, version: object
) -> None:
    data = json.dumps({**SEED, "version": version}).encode()
    await put(documents, data)
    with pytest.raises(UnknownVersion, match="version"):
        await node(ann).history(latest)
    with pytest.raises(UnknownVersion):
        await say(node(ann), "m1")
    stored = await documents.read(KEY)
    assert stored is not None and stored.data == data


@in_a_folder
@pytest.mark.parametrize("parents", [{"a": "b", "b": "a"}, {"a": "a"}])
async def test_a_cycle_of_parents_is_reported(
    ann: UserStore, documents: Documents, parents: dict[str, str]
) -> None:
    messages = [
        {"message_id": one, "parent_message_id": parent, "role": "user", "content": "x"}
        for one, parent in parents.items()
    ]
    await put(documents, json.dumps({"version": 1, "messages": messages}).encode())
    with pytest.raises(CorruptDocument, match="circle"):
        await node(ann).history("a")


@in_a_folder
async def test_errors_contain_no_message_text(ann: UserStore, documents: Documents) -> None:
    secret = "sk-very-secret"
    message = {"message_id": "a", "role": "user", "content": [secret], "parent_message_id": None}
    await put(documents, json.dumps({"version": 1, "messages": [message]}).encode())
    with pytest.raises(CorruptDocument) as caught:
        await node(ann).history(latest)
    assert secret not in str(caught.value) and caught.value.__cause__ is None


# Adding, flushing, clearing


async def test_added_messages_are_buffered_until_flushed(
    ann: UserStore, documents: Documents
) -> None:
    memory = node(ann)
    await add(memory, "a")
    assert texts(await memory.history("a")) == ["a?", "a."]
    assert await keys(documents) == []
    assert await node(ann).history(latest) == []

    await memory.flush()
    assert texts(await node(ann).history(latest)) == ["a?", "a."]
    assert await keys(documents) == [KEY]


async def test_a_cleared_memory_stays_empty(ann: UserStore, documents: Documents) -> None:
    memory, other = node(ann), node(ann)
    await say(memory, "a")
    assert await other.history(latest) != []
    await add(memory, "b", "a")

    await memory.clear()

    assert await memory.history("a") == await node(ann).history(latest) == []
    assert await keys(documents) == []
    await memory.flush()
    await say(other, "c")
    assert texts(await node(ann).history(latest)) == ["c?", "c."]


async def test_a_repeated_id_is_one_turn(ann: UserStore) -> None:
    memory = node(ann)
    await add(memory, "a")
    await add(memory, "a")
    await memory.flush()
    await memory.flush()
    await say(node(ann), "a")
    await memory.add_messages("a", None, user_content="Else?", assistant_content="Else.")
    await memory.flush()
    assert [message.content for message in await node(ann).messages()] == ["a?", "a."]


@in_a_folder
async def test_an_id_that_clashes_with_another_message_is_refused(ann: UserStore) -> None:
    for message_id, parent in (("", None), ("a:user", None), ("a", "a")):
        with pytest.raises(ConfigError, match="cannot be the id of this turn"):
            await add(node(ann), message_id, parent)


# Branches


async def test_regenerated_turns_coexist(ann: UserStore) -> None:
    memory = node(ann)
    await say(memory, "a", "b")
    await add(memory, "b2", "a")
    await add(memory, "c", "b2")
    await memory.flush()
    assert texts(await memory.history("b")) == ["a?", "a.", "b?", "b."]
    assert texts(await memory.history("c")) == ["a?", "a.", "b2?", "b2.", "c?", "c."]


@in_a_folder
async def test_a_regenerated_root_starts_a_new_branch(ann: UserStore) -> None:
    memory = node(ann)
    await say(memory, "a", "b")
    await say(memory, "a2", "b2")
    assert texts(await memory.history("b2")) == ["a2?", "a2.", "b2?", "b2."]
    assert await memory.history(None) == []


@in_a_folder
async def test_siblings_use_none_of_the_branchs_budget(ann: UserStore) -> None:
    memory = node(ann)
    await say(memory, "a", "b")
    for number in range(50):
        await add(memory, f"else{number}", "a")
    assert texts(await memory.history("b", message_limit=4)) == ["a?", "a.", "b?", "b."]
    assert texts(await memory.history("b", max_token_limit=60)) == ["a?", "a.", "b?", "b."]


@in_a_folder
async def test_history_can_be_read_for_a_turn_before_it_is_added(ann: UserStore) -> None:
    memory = node(ann)
    assert await memory.history("m1") == []
    await add(memory, "m1", None)
    assert texts(await memory.history("m2")) == ["m1?", "m1."]
    await add(memory, "m2", "m1")
    assert texts(await memory.history("m3")) == ["m1?", "m1.", "m2?", "m2."]


@in_a_folder
async def test_a_turn_that_is_answered_again_follows_its_parent(ann: UserStore) -> None:
    memory = node(ann)
    await say(memory, "m1", "m2")
    again = await memory.history("m2-again", parent_message_id="m1")
    assert texts(again) == ["m1?", "m1."]
    skipped = await memory.history("m4", parent_message_id="m3, in which the node had no part")
    assert texts(skipped) == ["m1?", "m1.", "m2?", "m2."]


@in_a_folder
async def test_a_node_that_skipped_turns_continues_from_its_last_one(ann: UserStore) -> None:
    # The conversation is a, b, c, d; the node took no part in b and c, and d comes next.
    async def line(messages: Sequence[NodeMessage]) -> str | None:
        ids = [
            message.message_id for message in messages if message.message_id in {"a", "b", "c", "d"}
        ]
        return ids[-1] if ids else None

    memory = node(ann)
    await say(memory, "a")
    await say(memory, "other")
    assert texts(await memory.history(line)) == ["a?", "a."]
    await memory.add_messages("d", line, user_content="d?", assistant_content="d.")
    await memory.flush()
    assert texts(await memory.history("d")) == ["a?", "a.", "d?", "d."]


@in_a_folder
async def test_a_missing_parent_starts_the_history(ann: UserStore) -> None:
    memory = node(ann)
    await add(memory, "c", "before the memory was cleared")
    await add(memory, "d", "c")
    assert texts(await memory.history("d")) == ["c?", "c.", "d?", "d."]


# Limits, and unfinished turns


@in_a_folder
async def test_whole_turns_are_included_up_to_both_limits(ann: UserStore) -> None:
    memory = node(ann)
    await say(memory, *"abcd")
    whole = await memory.history("d")
    turn = sum(map(count_message, whole[-2:]))
    for limit, left in ((2 * turn, 4), (2 * turn - 1, 2), (turn - 1, 0), (4 * turn, 8)):
        assert await memory.history("d", max_token_limit=limit) == whole[8 - left :]
    assert await memory.history("d", message_limit=5) == whole[4:]


@in_a_folder
async def test_a_newest_turn_over_the_budget_leaves_no_history(ann: UserStore) -> None:
    memory = node(ann)
    await say(memory, "a")
    await memory.add_messages("b", "a", user_content="b?", assistant_content="words " * 3000)
    assert await memory.history("b") == []
    assert texts(await memory.history("a")) == ["a?", "a."]


@in_a_folder
async def test_a_finished_empty_answer_is_included(ann: UserStore) -> None:
    memory = node(ann)
    await memory.add_messages("a", None, user_content="a?", assistant_content="")
    assert [(op.role, op.text) for op in await memory.history("a")] == [
        ("user", "a?"),
        ("assistant", ""),
    ]


@in_a_folder
async def test_a_message_without_its_answer_is_excluded(
    ann: UserStore, documents: Documents
) -> None:
    await say(node(ann), "a")
    read = await documents.read(KEY)
    assert read is not None
    document = json.loads(read.data)
    document["messages"].append(
        {"message_id": "b", "parent_message_id": "a", "role": "user", "content": "b?"}
    )
    await put(documents, json.dumps(document).encode())
    assert texts(await node(ann).history("b")) == ["a?", "a."]


# Files


@in_a_folder
async def test_one_broken_file_never_drops_the_turn(ann: UserStore) -> None:
    memory = node(ann)
    good = FileRef("image", "https://example.org/a.png", "image/png", "a.png")
    await memory.add_messages(
        "a",
        None,
        user_content="Look.",
        user_files=[good, FileRef("video", "upload:lost"), FileRef("custom", "?")],
        assistant_content="Seen.",
    )
    await memory.flush()
    first, second = await node(ann).history("a", max_token_limit=10_000)
    assert (first.files, second.text) == ((good,), "Seen.")
    assert "upload:lost" in first.text and "not there" in first.text


@in_a_folder
async def test_another_owners_file_is_refused(opened: Store, ann: UserStore) -> None:
    ids = {"ann": str(uuid.uuid4()), "bob": str(uuid.uuid4())}
    for owner, identity in ids.items():
        store = opened.of(owner)
        await store.threads.ensure("files")
        content = f"what {owner} wrote".encode()
        file = NewFile(identity, "document", "upload", f"{owner}.txt", "text/plain", content)
        await store.files.put("files", file)
    memory = node(ann)
    refs = [FileRef("document", f"upload:{identity}") for identity in ids.values()]
    await memory.add_messages(
        "a", None, user_content="Read.", user_files=refs, assistant_content="Done."
    )

    first, second = await memory.history("a", max_token_limit=10_000)

    assert [(file.uri, file.name) for file in first.files] == [(refs[0].uri, "ann.txt")]
    assert "not there" in first.text and "bob.txt" not in first.text
    assert second.text == "Done."
