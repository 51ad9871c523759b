"""`agent-runtime skills`: the skills that an agent has in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from agent_runtime.cli.options import json_object_option
from agent_runtime.cli.terminal import printable, say, write_json, write_row


@click.command()
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    default=".",
    help="The folder that the agent would work in; by default this one.",
)
@json_object_option
def skills(workspace: Path, as_json: bool) -> None:
    """List the skills that an agent has in a folder, and what is wrong with others.

    A skill is a folder with a SKILL.md. The folders of AGENT_RUNTIME_SKILLS are searched first,
    then the user's (~/.agents/skills and others), then the project's (.agents/skills,
    .claude/skills). Of skills with the same name the first one is used.
    """
    from agent_runtime.tools.skills.find import find_skills, skill_folders
    from agent_runtime_config import load_settings

    folders = skill_folders(workspace, load_settings())
    found = find_skills(folders)
    if as_json:
        listed = [
            {
                "name": one.name,
                "description": one.description,
                "folder": str(one.folder),
                "trust": one.trust,
            }
            for one in found.skills
        ]
        write_json({"skills": listed, "problems": list(found.problems)})
        return
    for one in found.skills:
        write_row(printable(f"{one.name}  ({one.trust})  {one.folder}", lines=False))
        write_row(printable(f"    {one.description}", lines=False))
    for problem in found.problems:
        say(printable(problem, lines=False))
    if not found.skills:
        places = ", ".join(str(one.path) for one in folders)
        say(f"There are no skills here. These folders were searched: {places}.")
