"""Find skills: where they are looked for, and which of two with one name counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agent_runtime.errors import ConfigError
from agent_runtime.tools.context_sources.git_state import git_root
from agent_runtime.tools.skills.skill import FILE, Skill, Trust
from agent_runtime_config import Settings
from agent_runtime_config.state import config_folder

CLIENTS = (".agents", ".claude")
"""The folders in which agents keep their files, the one that they share first."""
MOST_FOLDERS = 500
"""The most entries of a folder of skills that are looked at."""


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """A folder of skills, or of one.

    Attributes:
        trust: whose its skills are.
        needed: whether it is an error if the folder is missing.
    """

    path: Path
    trust: Trust = "user"
    needed: bool = False


@dataclass(frozen=True, slots=True)
class FoundSkills:
    """The skills that were found.

    Attributes:
        skills: one of each name.
        problems: skills that are invalid or not used, and why, each as a sentence.
    """

    skills: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()


def skill_folders(workspace: Path | None, settings: Settings) -> list[SkillFolder]:
    """Return where skills are looked for, the best first: settings, the user's, the project's.

    A project's skill never takes the place of one that the user has: anybody may have written it.
    """
    own = [Path(one).expanduser() for one in settings.skills.split(os.pathsep) if one.strip()]
    folders = [SkillFolder(one, needed=True) for one in own]
    if (config := config_folder()) is not None:
        folders.append(SkillFolder(config / "skills"))
    with suppress(RuntimeError):
        folders += [SkillFolder(Path.home() / name / "skills") for name in CLIENTS]
    if workspace is not None:
        top = git_root(workspace) or workspace
        above = [one for one in (workspace, *workspace.parents) if one.is_relative_to(top)]
        known = {one.path for one in folders}
        places = [one / name / "skills" for one in above for name in CLIENTS]
        folders += [SkillFolder(one, "project") for one in places if one not in known]
        # The agent can write what lies in the workspace, and must not speak for the user.
        folders = [_of_project(one, workspace) for one in folders]
    return folders


def _of_project(folder: SkillFolder, workspace: Path) -> SkillFolder:
    inside = Path(os.path.realpath(folder.path)).is_relative_to(workspace)
    return SkillFolder(folder.path, "project", folder.needed) if inside else folder


def find_skills(folders: Iterable[SkillFolder | Skill]) -> FoundSkills:
    """Return the valid skills of the folders; of several with one name the first.

    Blocks.
    """
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for folder in folders:
        ones = [folder] if isinstance(folder, Skill) else _in_folder(folder, problems)
        for one in ones:
            first = found.setdefault(one.name, one)
            if first.folder != one.folder:
                problems.append(
                    f"The skill {one.name} in {one.folder} is not used, because {first.folder} has "
                    "the same name."
                )
    return FoundSkills(tuple(found.values()), tuple(problems))


def _in_folder(folder: SkillFolder, problems: list[str]) -> list[Skill]:
    if os.path.lexists(folder.path / FILE):
        places: Sequence[Path] = [folder.path]
    else:
        try:
            with os.scandir(folder.path) as entries:
                # Bounded before it is sorted: the folder may be any folder.
                names = sorted(one.name for one in islice(entries, MOST_FOLDERS))
        except OSError as error:
            if folder.needed or not isinstance(error, FileNotFoundError | NotADirectoryError):
                problems.append(f"The folder of skills {folder.path}: {error.strerror}.")
            return []
        places = [folder.path / name for name in names]
    skills: list[Skill] = []
    for place in places:
        try:
            if not os.path.lexists(place / FILE):
                continue
            _check_place(place, folder)
            skills.append(Skill.read(place, folder.trust))
        except (ConfigError, OSError) as error:
            problems.append(error.message if isinstance(error, ConfigError) else str(error))
    return skills


def _check_place(place: Path, folder: SkillFolder) -> None:
    """Refuse a project's skill that is a link out of its folder. Raises `ConfigError`."""
    if folder.trust == "project" and not Path(os.path.realpath(place)).is_relative_to(
        os.path.realpath(folder.path)
    ):
        raise ConfigError(f"The skill {place} is a link out of {folder.path}, so it is not used.")
