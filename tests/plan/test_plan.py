"""Plans as values: valid changes, refused ones, and plans as text."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import plan_tool
from agent_runtime.errors import ConfigError, InvalidPlan
from agent_runtime.messages import Plan
from agent_runtime.models.tokens import count_text
from agent_runtime.plan.model import (
    DESCRIPTION_CHARS,
    GOAL_CHARS,
    PHASES,
    RESULT_CHARS,
    Followed,
    Step,
    create_plan,
    decode_plan,
    encode_plan,
    mark_item,
    stop_following,
    update_following,
    update_plan,
)
from agent_runtime.plan.render import (
    NOTE_TOKENS,
    render_plan_note,
    render_whole_plan,
    summarise_plan,
)
from tests.tools.calling import error


def step(**values: Any) -> Step:
    """Return a step as a model writes it."""
    return Step.model_validate(values)


def new_plan(*steps: Step, goal: str = "Ship it", phase: str | None = None) -> Plan:
    """Return a plan of these steps; by default of three in a chain."""
    chain = (
        step(id="a", description="Look"),
        step(id="b", description="Build", depends_on=["a"]),
        step(id="c", description="Check", depends_on=["b"]),
    )
    return create_plan(goal, steps or chain, phase=phase, phases=PHASES)


def change(plan: Plan, *steps: Step, **options: Any) -> Plan:
    """Return the plan after a change."""
    return update_plan(plan, steps=steps, phases=PHASES, **options)


def refusal(plan: Plan, *steps: Step, **options: Any) -> str:
    """Return the error of a refused change."""
    with pytest.raises(InvalidPlan) as caught:
        change(plan, *steps, **options)
    return str(caught.value)


def statuses(plan: Plan) -> list[str]:
    """Return the status of each item."""
    return [item.status for item in plan.items]


# Creating


def test_a_new_plan_begins_in_its_first_phase_and_iteration() -> None:
    plan = new_plan()
    assert (plan.goal, plan.phase, plan.iteration) == ("Ship it", "plan", 1)
    assert [(item.id, item.phase, item.status) for item in plan.items] == [
        ("a", "plan", "pending"),
        ("b", "plan", "pending"),
        ("c", "plan", "pending"),
    ]
    assert [item.id for item in plan.ready] == ["a"]


def test_steps_without_an_id_are_numbered_among_those_that_have_one() -> None:
    steps = [step(description="x"), step(id=2, description="y"), step(description="z")]
    assert [item.id for item in new_plan(*steps).items] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"description": ""}], "no description"),
        ([{"description": "x", "phase": "party"}], "no phase 'party'; the phases are: plan, exec"),
        ([{"description": "x", "depends_on": ["z"]}], "depends on z, which the plan does not have"),
        ([{"id": "a", "description": "x"}] * 2, "two steps have the id 'a'"),
        ([{"id": "a b", "description": "x"}], "without spaces"),
        ([{"id": "a", "description": "x", "depends_on": ["a"]}], "in a circle: a → a"),
        ([{"description": "x" * (DESCRIPTION_CHARS + 1)}], "longer than 1,000 characters"),
        ([{"description": "x", "result": "y" * (RESULT_CHARS + 1)}], "sum it up"),
        ([{"description": "x"}] * 501, "at most 500 steps, not 501"),
        ([{"description": "x", "follow": True}], "`follow` is for steps that are there"),
        ([], "the plan has no steps"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_reason(
    steps: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InvalidPlan) as caught:
        create_plan("g", [step(**fields) for fields in steps], phase=None, phases=PHASES)
    assert message in str(caught.value)


def test_goal_and_phase_are_checked() -> None:
    for goal, phase, message in (
        ("  ", None, "no goal"),
        ("g" * (GOAL_CHARS + 1), None, "longer than 2,000"),
        ("g", "party", "there is no phase 'party'"),
    ):
        with pytest.raises(InvalidPlan, match=message):
            create_plan(goal, [step(description="x")], phase=phase, phases=PHASES)


def test_a_refusal_names_all_problems_but_no_more_than_ten() -> None:
    with pytest.raises(InvalidPlan) as caught:
        create_plan("", [step(description="")] * 30, phase="party", phases=PHASES)
    lines = str(caught.value).splitlines()
    assert sum(line.startswith("- ") for line in lines) == 11
    assert "- and 52 more problems." in lines


# Changing


def test_an_update_changes_only_the_fields_that_it_names() -> None:
    plan = change(new_plan(), step(id="a", status="completed", result="seen"), goal="Ship two")
    assert (plan.items[0].status, plan.items[0].result) == ("completed", "seen")
    assert plan.items[0].description == "Look" and plan.items[1:] == new_plan().items[1:]
    assert plan.goal == "Ship two"
    assert [item.id for item in plan.ready] == ["b"]


def test_new_steps_are_added_at_the_end() -> None:
    plan = change(new_plan(), add=[step(description="Tell", depends_on=["c"])], phase="execute")
    assert [(item.id, item.phase) for item in plan.items[2:]] == [("c", "plan"), ("4", "execute")]


def test_a_refused_change_changes_nothing() -> None:
    plan = new_plan()
    message = refusal(plan, step(id="a", status="completed"), step(id="nowhere", status="failed"))
    assert "there is no step 'nowhere'; there are: a, b, c" in message
    assert statuses(plan) == ["pending"] * 3


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"status": "failed"}], "has no `id`"),
        ([{"id": "a"}, {"id": "a"}], "'a' is changed twice"),
        ([{"id": "b", "status": "completed"}], "'a' (pending)"),
        ([{"id": "a", "depends_on": ["c"]}], "in a circle"),
        ([{"id": "a", "depends_on": ["x"]}], "depends on x"),
        ([{"id": "a", "phase": "party"}], "there is no phase 'party'"),
        ([{"id": "a", "follow": True}], "needs another call"),
        ([], "nothing is changed"),
    ],
)
def test_an_invalid_change_is_refused(steps: list[dict[str, Any]], message: str) -> None:
    assert message in refusal(new_plan(), *(step(**fields) for fields in steps))


def test_a_dependency_may_be_skipped_or_completed_in_the_same_change() -> None:
    both = change(new_plan(), step(id="b", status="completed"), step(id="a", status="completed"))
    assert statuses(both) == ["completed", "completed", "pending"]
    skipped = change(new_plan(), step(id="a", status="skipped"), step(id="b", status="completed"))
    assert statuses(skipped) == ["skipped", "completed", "pending"]


def test_a_step_can_be_reopened_though_completed_steps_depend_on_it() -> None:
    plan = change(new_plan(), step(id="a", status="completed"), step(id="b", status="completed"))
    assert statuses(change(plan, step(id="a", status="failed"))) == [
        "failed",
        "completed",
        "pending",
    ]


def test_going_back_to_an_earlier_phase_begins_a_new_iteration() -> None:
    plan = change(new_plan(), phase="evaluate")
    assert (plan.phase, plan.iteration) == ("evaluate", 1)
    plan = change(plan, phase="execute")
    assert (plan.phase, plan.iteration) == ("execute", 2)
    assert change(plan, phase="execute").iteration == 2


def test_phases_of_an_earlier_agent_do_not_prevent_a_change() -> None:
    plan = update_plan(
        new_plan(), steps=[step(id="a", result="x", phase="draft")], phases=("draft", "polish")
    )
    assert [item.phase for item in plan.items] == ["draft", "plan", "plan"]


# Following calls


@pytest.mark.parametrize(
    ("outcomes", "status", "result"),
    [
        (["ok", "ok"], "completed", ""),
        (["ok", None], "in_progress", ""),
        (["error", None], "failed", "read_file: no such file"),
        (["ok", "interrupted"], "failed", "read_file: no such file"),
        (["ok", "refused"], "failed", "read_file: no such file"),
        (["ok", "cancelled"], "pending", ""),
    ],
)
def test_a_step_has_the_status_of_the_calls_that_it_follows(
    outcomes: list[str | None], status: str, result: str
) -> None:
    plan = change(new_plan(), step(id="a", follow=True), others=2)
    seen = update_following(
        plan, [Followed("read_file", outcome, "no such\nfile") for outcome in outcomes]
    )
    assert (seen.items[0].status, seen.items[0].result) == (status, result)
    assert statuses(seen)[1:] == ["pending", "pending"]
    # The next version keeps the observed status as its own.
    assert update_following(stop_following(seen), [Followed("x", "error")]) == stop_following(seen)


def test_a_step_with_open_dependencies_cannot_follow_calls() -> None:
    assert "'a' (pending)" in refusal(new_plan(), step(id="b", follow=True), others=1)


def test_mark_item_ignores_dependencies() -> None:
    plan = mark_item(new_plan(), "b", "failed", "it\n broke " + "x" * 5000)
    assert plan.items[1].status == "failed"
    assert plan.items[1].result.startswith("it broke") and len(plan.items[1].result) == RESULT_CHARS
    assert mark_item(new_plan(), "unknown", "completed") == new_plan()


# Storing and rendering


def test_a_decoded_plan_equals_the_encoded_one() -> None:
    plan = change(new_plan(), step(id="a", follow=True, result="ü\ud800"), others=1)
    decoded = decode_plan(encode_plan(plan), version=3, node_id=7, created_at=1.0)
    assert (decoded.items, decoded.goal, decoded.phase, decoded.iteration) == (
        plan.items,
        plan.goal,
        plan.phase,
        plan.iteration,
    )
    assert (decoded.version, decoded.node_id, decoded.created_at) == (3, 7, 1.0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"goal":1,"phase":"p","items":[]}'])
def test_an_invalid_body_is_not_decoded_as_a_plan(body: bytes) -> None:
    with pytest.raises(ValueError, match="no plan"):
        decode_plan(body, version=1, node_id=1, created_at=0.0)


def test_a_plan_is_rendered_whole() -> None:
    plan = change(new_plan(), step(id="a", status="completed", result="all\nseen"))
    assert render_whole_plan(plan).splitlines() == [
        "Plan version 0: 1 of 3 done, phase plan, iteration 1.",
        "Goal: Ship it",
        "[x] a (plan) Look → all seen",
        "[ ] b (plan) Build (after a)",
        "[ ] c (plan) Check (after b)",
    ]
    assert summarise_plan(plan).endswith("Can be begun: b.")
    assert render_plan_note(plan) == render_whole_plan(plan)


def test_the_note_of_a_large_plan_is_bounded_and_has_open_items_first() -> None:
    steps = [
        step(description=f"Do part {number} " + "with great care " * 20, result="well " * 50)
        for number in range(400)
    ]
    plan = new_plan(*steps, goal="Much " * 300)
    done = [step(id=number, status="completed") for number in range(1, 301)]
    plan = change(plan, *done, step(id=350, status="in_progress"), step(id=390, status="failed"))
    text = render_plan_note(plan)
    assert count_text(text) <= NOTE_TOKENS
    lines = text.splitlines()
    assert "300 of 400 done" in lines[0]
    assert "300 done or skipped, the last: 293" in lines[2]
    assert lines[3].startswith("[>] 350") and lines[4].startswith("[!] 390")
    assert lines[5].startswith("[ ] 301") and "that are not done" in lines[-1]


def test_a_long_list_of_dependencies_is_abbreviated() -> None:
    steps = [step(description="x") for _ in range(300)]
    last = step(id="last", description="y", depends_on=list(range(1, 301)), status="in_progress")
    lines = render_plan_note(new_plan(*steps, last)).splitlines()
    assert lines[2] == "[>] last (plan) y (after 1, 2, 3, 4, 5, 6 and 294 more)"


# The tool


async def test_arguments_of_wrong_types_are_refused_by_name() -> None:
    tool = plan_tool()
    message = await error(tool, action="create", goal=["x"], steps=[{"descriptoin": "x"}])
    assert "- goal: " in message and "steps.0.descriptoin" in message
    assert "- action: " in await error(tool, action="destroy")
    assert "steps.0.status" in await error(tool, action="update", steps=[{"id": 1, "status": "?"}])


def test_the_models_schema_names_the_phases() -> None:
    schema = plan_tool(phases=("draft", "polish")).spec.parameters
    assert schema["properties"]["phase"]["enum"] == ["draft", "polish"]
    assert plan_tool().spec.parameters["properties"]["phase"]["enum"] == list(PHASES)


@pytest.mark.parametrize("phases", [(), ("a", "a"), ("a", " "), ("a b",), "plan"])
def test_invalid_phases_are_refused(phases: Any) -> None:
    with pytest.raises(ConfigError, match="phases"):
        plan_tool(phases=phases)
