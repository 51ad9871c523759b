"""Plans as values: valid changes, refusals, and plans as text."""

from __future__ import annotations

from typing import Any

import pytest

from agent_runtime import plan_tool
from agent_runtime.errors import ConfigError, InvalidPlan
from agent_runtime.models.tokens import count_text
from agent_runtime.plan.model import (
    DESCRIPTION_CHARS,
    GOAL_CHARS,
    PHASES,
    RESULT_CHARS,
    Followed,
    Plan,
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
    """A step as a model writes it."""
    return Step.model_validate(values)


def made(*steps: Step, goal: str = "Ship it", phase: str | None = None) -> Plan:
    """A plan of these steps; of three in a chain if none are given."""
    chain = (
        step(id="a", description="Look"),
        step(id="b", description="Build", depends_on=["a"]),
        step(id="c", description="Check", depends_on=["b"]),
    )
    return create_plan(goal, steps or chain, phase=phase, phases=PHASES)


def changed(plan: Plan, *steps: Step, **given: Any) -> Plan:
    """The plan with a change."""
    return update_plan(plan, steps=steps, phases=PHASES, **given)


def refused(plan: Plan, *steps: Step, **given: Any) -> str:
    """What is said of a change that is refused."""
    with pytest.raises(InvalidPlan) as caught:
        changed(plan, *steps, **given)
    return str(caught.value)


def statuses(plan: Plan) -> list[str]:
    """The status of each item."""
    return [one.status for one in plan.items]


# Creating


def test_a_new_plan_begins_in_its_first_phase_and_iteration() -> None:
    plan = made()
    assert (plan.goal, plan.phase, plan.iteration) == ("Ship it", "plan", 1)
    assert [(one.id, one.phase, one.status) for one in plan.items] == [
        ("a", "plan", "pending"),
        ("b", "plan", "pending"),
        ("c", "plan", "pending"),
    ]
    assert [one.id for one in plan.ready] == ["a"]


def test_steps_without_an_id_are_numbered_among_those_that_have_one() -> None:
    steps = [step(description="x"), step(id=2, description="y"), step(description="z")]
    assert [one.id for one in made(*steps).items] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("steps", "said"),
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
def test_a_plan_that_is_not_valid_is_refused_with_what_is_allowed(
    steps: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(InvalidPlan) as caught:
        create_plan("g", [step(**one) for one in steps], phase=None, phases=PHASES)
    assert said in str(caught.value)


def test_goal_and_phase_are_checked() -> None:
    for goal, phase, said in (
        ("  ", None, "no goal"),
        ("g" * (GOAL_CHARS + 1), None, "longer than 2,000"),
        ("g", "party", "there is no phase 'party'"),
    ):
        with pytest.raises(InvalidPlan, match=said):
            create_plan(goal, [step(description="x")], phase=phase, phases=PHASES)


def test_a_refusal_names_all_problems_but_no_more_than_ten() -> None:
    with pytest.raises(InvalidPlan) as caught:
        create_plan("", [step(description="")] * 30, phase="party", phases=PHASES)
    lines = str(caught.value).splitlines()
    assert sum(line.startswith("- ") for line in lines) == 11
    assert "- and 52 more problems." in lines


# Changing


def test_only_what_is_given_of_a_step_changes() -> None:
    plan = changed(made(), step(id="a", status="completed", result="seen"), goal="Ship two")
    assert (plan.items[0].status, plan.items[0].result) == ("completed", "seen")
    assert plan.items[0].description == "Look" and plan.items[1:] == made().items[1:]
    assert plan.goal == "Ship two"
    assert [one.id for one in plan.ready] == ["b"]


def test_steps_are_added_behind_the_others() -> None:
    plan = changed(made(), add=[step(description="Tell", depends_on=["c"])], phase="execute")
    assert [(one.id, one.phase) for one in plan.items[2:]] == [("c", "plan"), ("4", "execute")]


def test_a_change_is_refused_whole() -> None:
    plan = made()
    said = refused(plan, step(id="a", status="completed"), step(id="nowhere", status="failed"))
    assert "there is no step 'nowhere'; there are: a, b, c" in said
    assert statuses(plan) == ["pending"] * 3


@pytest.mark.parametrize(
    ("steps", "said"),
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
def test_a_change_that_is_not_valid_is_refused(steps: list[dict[str, Any]], said: str) -> None:
    assert said in refused(made(), *(step(**one) for one in steps))


def test_what_a_step_depends_on_may_be_completed_in_the_same_change_or_skipped() -> None:
    both = changed(made(), step(id="b", status="completed"), step(id="a", status="completed"))
    assert statuses(both) == ["completed", "completed", "pending"]
    skipped = changed(made(), step(id="a", status="skipped"), step(id="b", status="completed"))
    assert statuses(skipped) == ["skipped", "completed", "pending"]


def test_a_step_can_be_opened_again_below_those_that_depend_on_it() -> None:
    plan = changed(made(), step(id="a", status="completed"), step(id="b", status="completed"))
    assert statuses(changed(plan, step(id="a", status="failed"))) == [
        "failed",
        "completed",
        "pending",
    ]


def test_going_back_to_an_earlier_phase_begins_a_new_iteration() -> None:
    plan = changed(made(), phase="evaluate")
    assert (plan.phase, plan.iteration) == ("evaluate", 1)
    plan = changed(plan, phase="execute")
    assert (plan.phase, plan.iteration) == ("execute", 2)
    assert changed(plan, phase="execute").iteration == 2


def test_phases_of_an_agent_before_do_not_hinder_a_change() -> None:
    plan = update_plan(
        made(), steps=[step(id="a", result="x", phase="draft")], phases=("draft", "polish")
    )
    assert [one.phase for one in plan.items] == ["draft", "plan", "plan"]


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
    plan = changed(made(), step(id="a", follow=True), others=2)
    seen = update_following(plan, [Followed("read_file", one, "no such\nfile") for one in outcomes])
    assert (seen.items[0].status, seen.items[0].result) == (status, result)
    assert statuses(seen)[1:] == ["pending", "pending"]
    # The next version has it as its own.
    assert update_following(stop_following(seen), [Followed("x", "error")]) == stop_following(seen)


def test_what_waits_for_another_step_cannot_follow() -> None:
    assert "'a' (pending)" in refused(made(), step(id="b", follow=True), others=1)


def test_what_was_observed_is_marked_whatever_it_depends_on() -> None:
    plan = mark_item(made(), "b", "failed", "it\n broke " + "x" * 5000)
    assert plan.items[1].status == "failed"
    assert plan.items[1].result.startswith("it broke") and len(plan.items[1].result) == RESULT_CHARS
    assert mark_item(made(), "unknown", "completed") == made()


# Stored and rendered


def test_a_plan_is_read_as_it_was_stored() -> None:
    plan = changed(made(), step(id="a", follow=True, result="ü\ud800"), others=1)
    kept = decode_plan(encode_plan(plan), version=3, node_id=7, created_at=1.0)
    assert (kept.items, kept.goal, kept.phase, kept.iteration) == (
        plan.items,
        plan.goal,
        plan.phase,
        plan.iteration,
    )
    assert (kept.version, kept.node_id, kept.created_at) == (3, 7, 1.0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"goal":1,"phase":"p","items":[]}'])
def test_what_is_no_plan_is_not_read_as_one(body: bytes) -> None:
    with pytest.raises(ValueError, match="no plan"):
        decode_plan(body, version=1, node_id=1, created_at=0.0)


def test_a_plan_is_rendered_whole() -> None:
    plan = changed(made(), step(id="a", status="completed", result="all\nseen"))
    assert render_whole_plan(plan).splitlines() == [
        "Plan version 0: 1 of 3 done, phase plan, iteration 1.",
        "Goal: Ship it",
        "[x] a (plan) Look → all seen",
        "[ ] b (plan) Build (after a)",
        "[ ] c (plan) Check (after b)",
    ]
    assert summarise_plan(plan).endswith("Can be begun: b.")
    assert render_plan_note(plan) == render_whole_plan(plan)


def test_a_large_plan_is_restated_within_its_bound_with_what_matters_first() -> None:
    steps = [
        step(description=f"Do part {number} " + "with great care " * 20, result="well " * 50)
        for number in range(400)
    ]
    plan = made(*steps, goal="Much " * 300)
    done = [step(id=number, status="completed") for number in range(1, 301)]
    plan = changed(plan, *done, step(id=350, status="in_progress"), step(id=390, status="failed"))
    text = render_plan_note(plan)
    assert count_text(text) <= NOTE_TOKENS
    lines = text.splitlines()
    assert "300 of 400 done" in lines[0]
    assert "300 done or skipped, the last: 293" in lines[2]
    assert lines[3].startswith("[>] 350") and lines[4].startswith("[!] 390")
    assert lines[5].startswith("[ ] 301") and "that are not done" in lines[-1]


def test_an_item_that_waits_for_many_is_restated_in_short() -> None:
    steps = [step(description="x") for _ in range(300)]
    last = step(id="last", description="y", depends_on=list(range(1, 301)), status="in_progress")
    lines = render_plan_note(made(*steps, last)).splitlines()
    assert lines[2] == "[>] last (plan) y (after 1, 2, 3, 4, 5, 6 and 294 more)"


# The tool


async def test_arguments_of_wrong_types_are_refused_by_name() -> None:
    tool = plan_tool()
    said = await error(tool, action="create", goal=["x"], steps=[{"descriptoin": "x"}])
    assert "- goal: " in said and "steps.0.descriptoin" in said
    assert "- action: " in await error(tool, action="destroy")
    assert "steps.0.status" in await error(tool, action="update", steps=[{"id": 1, "status": "?"}])


def test_the_models_schema_names_the_phases() -> None:
    schema = plan_tool(phases=("draft", "polish")).spec.parameters
    for part in (schema, schema["$defs"]["Step"]):
        assert part["properties"]["phase"]["anyOf"][0]["enum"] == ["draft", "polish"]
    assert plan_tool().spec.parameters["properties"]["phase"]["anyOf"][0]["enum"] == list(PHASES)


@pytest.mark.parametrize("phases", [(), ("a", "a"), ("a", " "), ("a b",), "plan"])
def test_phases_that_are_not_usable_are_refused(phases: Any) -> None:
    with pytest.raises(ConfigError, match="phases"):
        plan_tool(phases=phases)
