"""An environment for each peer, made by uv when it is first needed.

The versions stand here, so that two runs of the comparison compare the same.  The packages come
from wherever the user's uv is set up to get them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

RUNNERS = Path(__file__).parent / "runners"
LONGEST = 900.0
"""Seconds that an installation may take."""

OPENAI = "openai==3.54.0"
PYDANTIC = "pydantic==2.14.3"
LANGGRAPH = (
    "langgraph==1.2.22",
    "langchain==1.4.7",
    "langchain-core==1.7.2",
    "langchain-openai==1.7.3",
    "langgraph-checkpoint-sqlite==3.1.2",
    "aiosqlite==0.22.1",
    OPENAI,
    PYDANTIC,
)
PYDANTIC_AI = (
    "pydantic-ai-slim[openai]==2.62.0",
    "pydantic-ai-harness==0.62.0",
    OPENAI,
    PYDANTIC,
)


class Missing(Exception):
    """A peer's environment could not be made; says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One line of the comparison.

    Attributes:
        runner: the script, in `runners`.
        packages: what its environment holds; none for this project's own environment.
        behaves: whether its behaviour is looked at, which is not done with floors.
        compacts: whether it shortens its prompts by itself as it is set up here.
    """

    name: str
    runner: str
    packages: tuple[str, ...] = ()
    variant: str = ""
    behaves: bool = True
    compacts: bool = False


OURS = "agent-runtime"
FLOOR = "httpx, full history"
PEERS = (
    Peer(OURS, "with_agent_runtime.py", compacts=True),
    Peer(FLOOR, "with_httpx.py", variant="history", behaves=False),
    Peer("httpx, our prompts", "with_httpx.py", variant="replay", behaves=False),
    Peer("LangGraph", "with_langgraph.py", LANGGRAPH),
    Peer("LangGraph, summaries", "with_langgraph.py", LANGGRAPH, "summaries", compacts=True),
    Peer(
        "LangGraph, summaries of all",
        "with_langgraph.py",
        LANGGRAPH,
        "summaries of all",
        compacts=True,
    ),
    Peer("deepagents", "with_deepagents.py", ("deepagents==0.7.32", *LANGGRAPH), compacts=True),
    Peer("OpenAI Agents", "with_openai_agents.py", ("openai-agents==0.24.0", OPENAI, PYDANTIC)),
    Peer("pydantic-ai", "with_pydantic_ai.py", PYDANTIC_AI),
    Peer(
        "pydantic-ai, compaction", "with_pydantic_ai.py", PYDANTIC_AI, "compaction", compacts=True
    ),
    Peer("Agno", "with_agno.py", ("agno==3.1.10", "sqlalchemy[asyncio]==2.1.9", OPENAI, PYDANTIC)),
    Peer("ADK", "with_adk.py", ("google-adk==2.13.0", "litellm==1.105.3", PYDANTIC)),
)


def default_folder() -> Path:
    """Return the folder that environments are kept in."""
    return platformdirs.user_cache_path("agent-runtime") / "peers"


@dataclass(slots=True)
class Environments:
    """Makes environments in a folder, and keeps them there."""

    folder: Path
    _failed: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    def python(self, peer: Peer) -> str:
        """Return the interpreter for a peer's runner.

        Raises:
            Missing: it cannot be installed.
        """
        if not peer.packages:
            return sys.executable
        if peer.packages in self._failed:
            raise Missing(self._failed[peer.packages])
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        key = hashlib.sha256("\n".join((version, *peer.packages)).encode()).hexdigest()[:12]
        place = self.folder / f"{Path(peer.runner).stem}-{key}"
        python = place / "bin" / "python"
        if not (place / "complete").exists():
            try:
                self._make(place, python, peer.packages)
            except Missing as error:
                self._failed[peer.packages] = str(error)
                raise
            (place / "complete").touch()
        return str(python)

    def _make(self, place: Path, python: Path, packages: tuple[str, ...]) -> None:
        print(f"installing {packages[0]} and what it needs into {place}", file=sys.stderr)
        uv = _uv()
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Not in this project's folder: what its pyproject.toml constrains is not for others.
        _run([*uv, "venv", "--quiet", "--python", sys.executable, str(place)], place.parent)
        install = [*uv, "pip", "install", "--quiet", "--python", str(python)]
        _run([*install, *packages], place.parent)


def _uv() -> list[str]:
    if found := shutil.which("uv"):
        return [found]
    if shutil.which("python3"):
        return ["python3", "-m", "uv"]
    raise Missing("there is no uv: install it, and see that it is on PATH")


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["uv failed without a message"]
        raise Missing(" ".join(line.strip() for line in lines)[:300])
