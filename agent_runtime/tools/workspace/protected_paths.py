"""Paths that the file tools must not write, and paths that they must not read either.

Protected is what takes effect although nobody runs the project's code: what git, a shell, an editor
or a package manager reads by itself.  Code that the user runs knowingly, such as a `Makefile`, a
`conftest.py` or a workflow of CI, is what agents are there to write; it is not protected.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

PROTECTED = (
    # Hooks and configuration of version control.
    ".git",
    ".gitconfig*",
    ".hg",
    ".hgrc",
    ".svn",
    ".jj",
    ".husky",
    ".githooks",
    ".pre-commit-config.y*ml",
    "lefthook*.*ml",
    ".lefthook*.*ml",
    # Installed programs, which shadow those of the system.
    ".venv",
    "venv",
    "pyvenv.cfg",
    "node_modules",
    # What a shell reads when it starts or enters a folder.
    ".envrc",
    ".mise*",
    "mise*.toml",
    ".*shrc",
    ".*profile",
    ".bash_*",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".login",
    ".logout",
    ".inputrc",
    ".xinitrc",
    ".xsession*",
    ".config/*",
    ".local/*",
    "Library/LaunchAgents",
    # What editors and other agents run on opening a folder.
    ".vscode",
    ".idea",
    ".zed",
    "*.code-workspace",
    ".devcontainer*",
    ".vimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".emacs*",
    ".dir-locals.el",
    ".agents",
    ".claude",
    ".cursor",
    ".codex",
    ".gemini",
    ".windsurf",
    ".opencode",
    "opencode.json*",
    ".aider*",
    ".mcp.json",
    # What interpreters and debuggers read in the folder where they start.
    ".pdbrc*",
    ".irbrc",
    ".pryrc",
    ".ghci",
    ".gdbinit",
    ".lldbinit",
    ".Renviron",
    "sitecustomize.py",
    "usercustomize.py",
    # Where packages are downloaded from.
    ".npmrc",
    ".yarnrc*",
    ".yarn",
    ".pnpmfile.*",
    ".bundle",
    ".mvn",
    ".pnp.*",
    "pip.conf",
    "uv.toml",
    ".condarc",
    ".cargo",
)
"""Globs that are protected from writing, by default."""

PROTECTED_FILES = (
    # With such a file any folder may be a repository of git.  As a folder, `head` holds parts of
    # pages in many projects.
    "HEAD",
)
"""The same for files; folders of these names, and what is in them, are not protected."""

HIDDEN = (
    ".env",
    ".env.*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!.env.dist",
    ".netrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker/config.json",
)
"""Globs of files that hold secrets: protected from reading as well, by default."""


@dataclass(frozen=True, slots=True)
class _Glob:
    names: tuple[str, ...]
    allows: bool
    file: bool


@dataclass(frozen=True, slots=True)
class Globs:
    """A list of globs, of which the last that matches decides.

    As in a `.gitignore`: a glob without `/` matches a name in any folder, one with `/` matches from
    the workspace on, `**` stands for any folders, and a match of a folder is one of all that is in
    it.  `!` before a glob makes an exception.  Letters' case makes no difference.
    """

    globs: tuple[_Glob, ...] = ()

    @classmethod
    def of(cls, globs: Iterable[str], *, files: bool = False) -> Globs:
        """Return the list; empty globs count as none.

        Args:
            files: whether a match of a folder is none of what is in it.
        """
        return cls(tuple(_parsed(one.strip(), files) for one in globs if one.strip().strip("!/")))

    def matches(self, parts: Sequence[str]) -> bool | None:
        """Return whether the parts of a path below the workspace match.

        None if no glob fits, False if the last one that fits is an exception.
        """
        names = tuple(map(_plain, parts))
        # From the last on, as it decides.
        for one in reversed(self.globs):
            if fits(one.names, names, whole=one.file):
                return not one.allows
        return None

    def __add__(self, other: Globs) -> Globs:
        return Globs(self.globs + other.globs)


@dataclass(frozen=True, slots=True)
class ProtectedPaths:
    """What file tools must not write (`protected`), and what they must not read either (`hidden`).

    The lists of two such objects are added by `+`: those of the second decide first.
    """

    protected: Globs = Globs()
    hidden: Globs = Globs()

    @classmethod
    def of(cls, protected: Iterable[str] = (), hidden: Iterable[str] = ()) -> ProtectedPaths:
        """Return the object for two lists of globs."""
        return cls(Globs.of(protected), Globs.of(hidden))

    def __add__(self, other: ProtectedPaths) -> ProtectedPaths:
        return ProtectedPaths(self.protected + other.protected, self.hidden + other.hidden)


@cache
def from_settings(protected: str, hidden: str) -> ProtectedPaths:
    """Return the object for two settings, each of globs with commas between them."""
    return ProtectedPaths.of(protected.split(","), hidden.split(","))


def _parsed(glob: str, file: bool) -> _Glob:
    allows, glob = glob.startswith("!"), glob.removeprefix("!")
    names = tuple(_plain(one) for one in glob.split("/") if one not in ("", "."))
    # A leading `/` anchors a name, as does one between names.
    return _Glob(names if "/" in glob.rstrip("/") else ("**", *names), allows, file)


def fits(globs: Sequence[str], names: Sequence[str], *, whole: bool) -> bool:
    """Return whether the names, or unless `whole` also the first of them, match the globs.

    Args:
        globs: one for each name; `**` stands for any number of them.
    """
    # Not by recursion: a path may have thousands of parts.
    end, reached = len(globs), _passed(globs, {0})
    for name in names:
        if end in reached and not whole:
            return True
        reached = _passed(
            globs,
            {
                at + (globs[at] != "**")
                for at in reached - {end}
                if globs[at] == "**" or fnmatchcase(name, globs[at])
            },
        )
    return end in reached


def _passed(globs: Sequence[str], places: set[int]) -> set[int]:
    """Return the places in the globs, and those behind a `**`, which may stand for no folder."""
    for at in sorted(places):
        while at < len(globs) and globs[at] == "**":
            at += 1
            places.add(at)
    return places


def _plain(name: str) -> str:
    """Return a name as file systems may compare it: any case, without invisible characters."""
    # On HFS+ and APFS `.GIT` and `.g\u200cit` are `.git`.
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(one for one in text if unicodedata.category(one) != "Cf")


DEFAULT = ProtectedPaths(
    Globs.of(PROTECTED) + Globs.of(PROTECTED_FILES, files=True), Globs.of(HIDDEN)
)
