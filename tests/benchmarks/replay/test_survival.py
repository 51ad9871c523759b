"""The survival benchmark's measurements, on a run small enough to verify by hand."""

from __future__ import annotations

import pytest

from agent_runtime.memory.observational.thresholds import MemoryThresholds
from agent_runtime.prompt.observation import Observation, ObservationNotes
from agent_runtime.prompt.view import Entry
from benchmarks.replay.recordings import RecordedCall, Step, Trace, Turn
from benchmarks.replay.survival import by_rules, facts, measure, whole, with_ledger
from benchmarks.replay.survival_world import live, occurs

FILLER = "so it goes on and on. " * 60
BANDS = MemoryThresholds(observe=2000, reflect=1000, last_messages=2)


def step(arguments: str, result: str) -> Step:
    call = RecordedCall("read", f'{{"path": "{arguments}"}}', result)
    return Step("", "", (call,), (), None)


def trace(*steps: Step, task: str = "Mend the shop.", system: str = "") -> Trace:
    return Trace("one", "made", system, (Turn(task, (), steps),), 0.2, 0)


def filled(count: int) -> list[Step]:
    return [step(f"{index}", FILLER) for index in range(count)]


def keep(*ledger: str) -> tuple[int, int, int]:
    """Return, for a run that needs three identifiers, the counts needed, preserved and verbatim."""
    steps = [step("/srv/shop/cart.py", "def cart_total")]
    ends = [step("/srv/shop/cart.py cart_total tax_rate", "")]
    made = live(trace(*steps, *filled(12), *ends), BANDS)

    def policy(entries: tuple[Entry, ...], before: object) -> Observation:
        listed = ledger if before == [] else ()
        return Observation(
            0, 0, None, entries[0].seq, entries[-1].seq, ObservationNotes(()), listed
        )

    result = measure([made], policy)
    return sum(result.needed), sum(result.kept), result.verbatim


def test_identifiers_that_left_and_are_used_again_are_needed_at_each_activation() -> None:
    needed, counts, _ = keep()
    # `tax_rate` did not occur before its use.
    assert needed > 0
    assert needed % 2 == 0
    assert counts == 0


def test_listed_identifiers_are_preserved() -> None:
    needed, counts, verbatim = keep("/srv/shop/cart.py", "cart_total")
    assert counts == verbatim == needed
    needed, counts, verbatim = keep("cart_total_sum", "/srv/shop/cart.py")
    assert counts == verbatim == needed // 2


def test_a_path_listed_by_its_folder_is_preserved_but_not_verbatim() -> None:
    needed, counts, verbatim = keep("$=/srv/shop", "$/cart.py", "cart_total")
    assert counts == needed
    assert verbatim == needed // 2
    _, counts, _ = keep("$=/srv/other", "$/cart.py")
    assert counts == 0


def test_the_ledger_preserves_the_identifiers_that_the_run_needs() -> None:
    steps = [step("/srv/shop/cart.py", "def cart_total"), *filled(12)]
    made = live(trace(*steps, step("/srv/shop/cart.py", "")), BANDS)
    result = measure([made], with_ledger(25))
    assert result.needed == result.kept
    assert result.per_thousand <= 25
    assert result.twice == 0


@pytest.mark.parametrize("where", ["again", "system", "task"])
def test_identifiers_shown_meanwhile_or_always_are_not_lost(where: str) -> None:
    name = "/srv/shop/cart.py"
    middle = [step("1", name)] if where == "again" else []
    steps = [step(name, ""), *filled(12), *middle, step(name, "")]
    system = name if where == "system" else ""
    task = name if where == "task" else "Mend it."
    result = measure([live(trace(*steps, system=system, task=task), BANDS)], with_ledger(0))
    assert result.needed == result.kept


def test_identifiers_listed_by_two_ledgers_are_counted() -> None:
    steps = [step("/srv/shop/cart.py", ""), *filled(20)]
    made = live(trace(*steps), BANDS)

    def policy(entries: tuple[Entry, ...], before: object) -> Observation:
        return Observation(
            0, 0, None, entries[0].seq, entries[-1].seq, ObservationNotes(()), ("a_b",)
        )

    result = measure([made], policy)
    assert result.activations > 0
    assert result.twice == made.moments[-1].chunks - 1


def test_words_are_compared_as_wholes() -> None:
    assert occurs("cart", "a cart.")
    assert occurs("/a/b", "x=/a/b/c")
    assert not occurs("cart", "carts")
    assert not occurs("cart", "my_cart")
    assert whole("Seen: $=/a/b x_y $/c.py") == "Seen:  x_y /a/b/c.py"


def shell(command: str, result: str) -> Step:
    return Step("", "", (RecordedCall("bash", f'{{"command": "{command}"}}', result),), (), None)


def test_facts_are_counted_and_kept_by_the_rules() -> None:
    edit = '{"file_path": "/srv/cart.py", "old_string": "a = 1", "new_string": "total = price(a)"}'
    steps = [
        shell("pytest a.py", "FAILED a.py::test_old - E\\n1 failed in 1s"),
        Step("", "", (RecordedCall("Edit", edit, "ok"),), (), None),
        shell("pytest a.py", "2 passed in 1s"),
        shell("go test ./x", "--- FAIL: TestSum (0.0s)\\nFAIL\\tx\\t0.1s"),
    ]
    asked = Turn("Never touch the prices of the shop.", (), (*steps, step("x", FILLER)))
    proposal = Step("Option 1 removes the old total. Shall I do that?", "", (), (), None)
    asked = Turn(asked.task, (), (*asked.steps, proposal))
    made = Trace("one", "made", "", (asked, Turn("yes, please", (), tuple(filled(14)))), 0.2, 0)
    kept = facts([live(made, BANDS)], by_rules)
    assert kept.of == {
        "edits": 1, "verdicts": 2, "failing tests": 1, "proposals": 2, "constraints": 1,
    }  # fmt: skip
    assert kept.kept == kept.of
    assert kept.stale == 0
    lost = facts([live(made, BANDS)], with_ledger(0))
    assert lost.kept["edits"] == lost.kept["verdicts"] == lost.kept["proposals"] == 0
