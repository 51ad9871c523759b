"""`Skill`: a folder with a `SKILL.md`, as agentskills.io specifies it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from agent_runtime.errors import ConfigError, ToolError
from agent_runtime.tools.workspace.file_rules import USUAL, FileRules
from agent_runtime.tools.workspace.protected_paths import DEFAULT, ProtectedPaths
from agent_runtime.tools.workspace.root import Root

FILE = "SKILL.md"
FILE_BYTES = 256 << 10
"""The most bytes of a `SKILL.md`, or of another file of a skill."""
LIST_SECONDS = 2.0
"""How long the files of a skill are looked for."""
# As agentskills.io limits them.
NAME_CHARS, DESCRIPTION_CHARS = 64, 1024
# Far more than a name and a description need; YAML of any size takes long to read.
_HEADER_BYTES = 16 << 10

Trust = Literal["user", "project"]
"""Whose skill it is: the user's, or the project's, which may come from anybody."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HEADER = re.compile(r"\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill.

    Attributes:
        description: what it does, and when to use it.
        folder: where its files are.
        trust: the project's skills are described to the model as such.
    """

    name: str
    description: str
    folder: Path
    trust: Trust = "user"

    @classmethod
    def read(cls, folder: str | os.PathLike[str], trust: Trust = "user") -> Skill:
        """Return the skill in a folder.

        Raises:
            ConfigError: it has no `SKILL.md`, or one that is not valid.
        """
        place = Path(folder).resolve()
        try:
            fields, _ = _parsed(read_text(place, FILE))
            return cls(_name(fields, place.name), _description(fields), place, trust)
        except (ToolError, ValueError) as error:
            reason = error.message if isinstance(error, ToolError) else str(error)
            raise ConfigError(
                f"{place / FILE} is not a skill: {reason.rstrip('.')}.",
                cure="See https://agentskills.io/specification, or remove the folder.",
            ) from None

    def body(self, rules: FileRules = USUAL) -> str:
        """Return the text of its `SKILL.md` as it is now, without the front matter.

        Raises:
            ToolError: it cannot be read.
        """
        try:
            return _parsed(self.file(FILE, rules))[1].strip()
        except ValueError as error:
            raise ToolError(f"The skill {self.name} is not valid any more: {error}.") from None

    def files(self, most: int) -> list[str]:
        """Return the paths of up to `most` of its other files, relative to its folder.

        Raises:
            ToolError: the folder cannot be listed.
        """
        deadline = time.monotonic() + LIST_SECONDS
        walk = _root(self.folder).walk(".", deadline=deadline)
        paths = (one.path for one in walk.found if one.kind == "file" and one.path != FILE)
        return sorted(paths, key=lambda path: (path.count("/"), path))[:most]

    def file(self, path: str, rules: FileRules = USUAL) -> str:
        """Return the text of one of its files.

        Raises:
            ToolError: it is not one of them, or hidden, or no text, or too long.
        """
        rules.check_readable(self.folder, path)
        return read_text(self.folder, path, rules.everywhere)


def read_text(folder: Path, path: str, rules: ProtectedPaths = DEFAULT) -> str:
    """Return a text in a folder, which no link leaves. Raises `ToolError`."""
    with _root(folder).read(path, rules) as (file, size):
        if size > FILE_BYTES:
            raise ToolError(f"{path} has {size:,} bytes; at most {FILE_BYTES:,} are read.")
        data = file.read(FILE_BYTES)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not UTF-8 text.") from None


def _root(folder: Path) -> Root:
    try:
        return Root(folder)
    except ConfigError as error:
        raise ToolError(error.message) from None


def _parsed(text: str) -> tuple[Mapping[str, Any], str]:
    """Return the fields of the front matter, and the body. Raises `ValueError`."""
    # Not at the top: few runs have skills.
    import yaml

    found = _HEADER.match(text)
    if found is None:
        raise ValueError("it does not begin with front matter between two lines `---`")
    if len(found[1]) > _HEADER_BYTES:
        raise ValueError("its front matter is too long")
    try:
        fields: object = yaml.safe_load(found[1])
    except Exception as error:
        # Not only its own errors: `!!bool x` is a KeyError, deep nesting a RecursionError.
        problem = getattr(error, "problem", None) or type(error).__name__
        raise ValueError(f"its front matter is not valid YAML ({problem})") from None
    if not isinstance(fields, dict):
        raise ValueError("its front matter has no fields")
    return cast("dict[str, Any]", fields), text[found.end() :]


def _name(fields: Mapping[str, Any], folder: str) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("it has no name")
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        raise ValueError(
            f"its name {name[:80]!r} is not 1 to {NAME_CHARS} of a-z, 0-9 and single hyphens"
        )
    if name != folder:
        raise ValueError(f"its name {name!r} is not that of its folder")
    return name


def _description(fields: Mapping[str, Any]) -> str:
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("it has no description")
    if len(description) > DESCRIPTION_CHARS:
        raise ValueError(
            f"its description has {len(description):,} characters; "
            f"{DESCRIPTION_CHARS:,} are allowed"
        )
    return " ".join(description.split())
