"""Rows by plain SQL, for `growth`: threads, messages, users, runs at work and runs that wait."""

from __future__ import annotations

from agent_runtime_storage import Store
from agent_runtime_storage.contract.records.log import LeaseOwner, NewNode, NewRun
from agent_runtime_storage.contract.records.search import NodeText
from agent_runtime_storage.drivers.protocol import Driver, Statement, Value

USER = "ann"
AXES = ("threads", "messages", "users", "at work", "waiting")
FAR = 4e9
"""No lease of these rows expires."""
INDEXED = 500
PICKED = 40


def owner_of(number: int) -> LeaseOwner:
    """Return a process as the owner of leases, on a machine of its own."""
    return LeaseOwner(f"host{number}", "boot", 1, "now", f"machine{number}", f"process{number}")


def node(seq: int, parent: int | None) -> NewNode:
    """Return a message of about 1 KB."""
    body = b"a line of an agent's work\n" * 40
    return NewNode(seq, parent, "message", "user", body, 250, 0, text="a line of work")


async def grow(store: Store, driver: Driver, axis: str, begun: int, size: int) -> None:
    """Write what is missing between two sizes; with the first also what is measured."""
    if begun == 0:
        await _begin(store)
    if axis not in ("threads", "messages"):
        # What is picked while it is measured.
        await _insert(driver, 0, PICKED, users=False, state="waiting", prefix=f"w{size}-")
    match axis:
        case "threads":
            await _insert(driver, begun, size, users=False, state="")
            await _index(store, "many", begun, size, own=True)
        case "messages":
            await _messages(driver, size)
            await _index(store, "t0", begun, size, own=False)
        case "users":
            await _insert(driver, begun, size, users=True, state="waiting")
        case "at work":
            await _insert(driver, begun, size, users=False, state="working")
        case _:
            await _insert(driver, begun, size, users=False, state="waiting")


async def _begin(store: Store) -> None:
    """Begin ten runs, the first on the thread that is measured."""
    user = store.of(USER)
    for number in range(10):
        thread = f"t{number}"
        await user.threads.ensure(thread)
        run = NewRun(
            id=f"held{number}",
            thread_id=thread,
            agent="agent",
            max_steps=1,
            spec={},
            owner=owner_of(1),
            lease_seconds=1e9,
            expect_head=None,
            expect_seq=0,
            nodes=(node(1, None),),
        )
        await user.runs.begin(run)


def _numbers(driver: Driver) -> str:
    if driver.dialect == "postgres":
        return "(SELECT * FROM generate_series(:first::bigint, :last::bigint) AS n (id)) AS n"
    return (
        "(SELECT id FROM (WITH RECURSIVE n (id) AS (SELECT :first UNION ALL SELECT id + 1 FROM n "
        "WHERE id < :last) SELECT id FROM n)) AS n"
    )


def _unchecked(driver: Driver) -> list[Statement]:
    # Two foreign key checks per row would take most of Postgres' time.
    if driver.dialect != "postgres":
        return []
    return [Statement("SELECT set_config('session_replication_role', 'replica', true)", {})]


async def _insert(
    driver: Driver, begun: int, size: int, *, users: bool, state: str, prefix: str = "b"
) -> None:
    """Insert a thread and a run each, and a row of the queue if there is a state."""
    user = "'user' || n.id" if users else ":user"
    values: dict[str, Value] = {"first": begun + 1, "last": size, "prefix": prefix}
    numbers = _numbers(driver)
    name = "CAST(:prefix AS text) || n.id"
    working = state == "working"
    status = "running" if working else "queued" if state else "succeeded"
    until = str(FAR) if working else "NULL"
    active = name if working else "NULL"
    texts = [
        "INSERT INTO threads (user_id, id, title, metadata, active_run, created_at, updated_at) "
        f"SELECT {user}, {name}, '', '{{}}', {active}, n.id, n.id FROM {numbers}",
        "INSERT INTO runs (user_id, id, thread_id, root_run_id, agent, status, max_steps, spec, "
        "epoch, lease_host, lease_until, created_at, updated_at) "
        f"SELECT {user}, {name}, {name}, {name}, 'agent', '{status}', 1, '{{}}', 1, 'host', "
        f"{until}, n.id, n.id FROM {numbers}",
    ]
    if state:
        texts.append(
            "INSERT INTO queue (user_id, run_id, thread_id, program, agent, version, model, state, "
            f"share, tag, enqueued_at, task) SELECT {user}, {name}, {name}, 'app', 'agent', '', "
            f"'m' || (n.id % 7), '{state}', {user}, n.id, n.id, '{{}}' FROM {numbers}"
        )
    # `active_run` refers to a run that comes later.
    first, *rest = texts
    ordered = [first.replace(f"{active}, n.id, n.id FROM", "NULL, n.id, n.id FROM"), *rest]
    if working:
        ordered.append(
            "UPDATE threads SET active_run = id WHERE user_id = :user AND active_run IS NULL "
            "AND id IN (SELECT run_id FROM queue WHERE user_id = :user AND state = 'working')"
        )
    statements = [
        Statement(text, {**values, "user": USER} if ":user" in text else values) for text in ordered
    ]
    if working:
        statements[-1] = Statement(ordered[-1], {"user": USER})
    await driver.batch([*_unchecked(driver), *statements], owner=None)


async def _messages(driver: Driver, size: int) -> None:
    """Let the measured thread have this number of messages, whatever steps have added."""
    [(last,)] = await driver.read(
        "SELECT last_seq FROM threads WHERE user_id = :user AND id = 't0'", {"user": USER},
        owner=None,
    )  # fmt: skip
    if last >= size:
        return
    values: dict[str, Value] = {"first": last + 1, "last": size, "user": USER}
    insert = (
        "INSERT INTO nodes (user_id, thread_id, id, parent_id, kind, status, role, activation_id, "
        "body, tokens, created_at) SELECT :user, 't0', n.id, n.id - 1, 'message', 'closed', "
        f"'user', 0, :body, 250, n.id FROM {_numbers(driver)}"
    )
    move = (
        "UPDATE threads SET head = :last, last_seq = :last, last_event = :last "
        "WHERE user_id = :user AND id = 't0'"
    )
    events = (
        "INSERT INTO events (user_id, thread_id, id, kind, data, created_at) SELECT :user, 't0', "
        f"n.id, 'message', '{{}}', n.id FROM {_numbers(driver)}"
    )
    [(event,)] = await driver.read(
        "SELECT last_event FROM threads WHERE user_id = :user AND id = 't0'", {"user": USER},
        owner=None,
    )  # fmt: skip
    batch = [
        Statement(insert, {**values, "body": b"a line of an agent's work\n" * 40}),
        Statement(events, {**values, "first": event + 1, "last": max(size, event + 1)}),
        Statement(move, {"last": size, "user": USER}),
    ]
    await driver.batch([*_unchecked(driver), *batch], owner=None)


async def _index(store: Store, thread: str, begun: int, size: int, *, own: bool) -> None:
    """Index a text for each row; ten of all contain the word that is sought."""
    user = store.of(USER)
    if own:
        # Texts of the threads themselves would need a message in each of them.
        await _text_threads(store, begun, size)
        return
    texts = [NodeText(seq, None, _text(seq)) for seq in range(max(begun, 1), size + 1)]
    for at in range(0, len(texts), INDEXED):
        await user.search.index(thread, texts[at : at + INDEXED])


async def _text_threads(store: Store, begun: int, size: int) -> None:
    """Begin a run with an indexed message on some of the threads."""
    user = store.of(USER)
    for number in range(begun, min(size, begun + 200)):
        thread = f"said{number}"
        await user.threads.ensure(thread)
        run = NewRun(
            id=thread, thread_id=thread, agent="agent", max_steps=1, spec={}, owner=owner_of(1),
            lease_seconds=1e9, expect_head=None, expect_seq=0,
            nodes=(NewNode(1, None, "message", "user", b"x", 1, 0, text=_text(number)),),
        )  # fmt: skip
        await user.runs.begin(run)


def _text(number: int) -> str:
    found = "the needle" if number < 10 else "nothing"
    return f"a line of an agent's work finds {found} in file{number}.py"
