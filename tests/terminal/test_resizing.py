"""A window of tmux that changes its size while a run works."""

from __future__ import annotations

import pytest

from agent_runtime.testing.model_server import Reply
from tests.cli.test_runs import Machine, machine
from tests.terminal.tmux import Tmux, shell_in_tmux

__all__ = ["machine"]

WIDTHS = [100, 60, 200]
WORDS = [f"word{n:02}" for n in range(60)]
PROSE = " ".join(WORDS)
WAIT = "until [ -e {name} ]; do sleep 0.1; done"


def held(name: str, text: str = "") -> Reply:
    """Return a call of a command that ends when a file is there."""
    return Reply(text=text, calls=(("bash", {"command": WAIT.format(name=name)}),))


def shows_only(tmux: Tmux, action: str) -> bool:
    """Return whether the current action is on the screen, once, and above it no remains of one."""
    rows = tmux.rows(all_of_it=False)
    live = [row for row in rows if row[:1] and "\u2800" <= row[0] <= "\u28ff"]
    steps = [row for row in tmux.rows() if row.startswith("step ")]
    return len(live) == 1 and action in live[0] and len(steps) == 1


@pytest.mark.slow
def test_a_run_stays_readable_while_the_window_changes(machine: Machine) -> None:
    replies = [held("one", PROSE), Reply(calls=(("ask_user", {"question": "Which colour?"}),)),
               held("two", PROSE.replace("word", "term")), Reply(text="All is done.")]  # fmt: skip
    machine.script = lambda request, n: replies[n]
    with shell_in_tmux(machine.folder, machine.environ, columns=WIDTHS[0], rows=30) as tmux:
        tmux.type("agent-runtime run Go. --workspace . --allow-shell")
        for name in ("one", "two"):
            for columns in (*WIDTHS, WIDTHS[0]):
                tmux.resize(columns, 30)
                tmux.wait_for(lambda name=name: shows_only(tmux, f"[ -e {name}"))
            (machine.folder / name).touch()
            if name == "one":
                tmux.until("Which colour?")
                tmux.resize(WIDTHS[1], 30)
                tmux.type("Blue.")
        tmux.until("All is done.", "Done after 4 steps")
        tmux.wait_for(tmux.at_prompt)
        rows = tmux.rows()
    words = " ".join(rows).split()
    # Nothing is lost, written twice, or broken in a word.
    assert [word for word in words if word in WORDS] == WORDS
    terms = [word.replace("word", "term") for word in WORDS]
    assert [word for word in words if word in terms] == terms
    text = "\n".join(rows)
    for once in ("starts: model", "Which colour?", "> Blue.", "All is done.", "Done after 4 steps"):
        assert text.count(once) == 1, text
    assert not [row for row in rows if row.startswith("step ") or row[:1] > "\u2800"]
