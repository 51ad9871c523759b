"""Settings of where agents work: tools, instructions, skills."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class ContextSettings(BaseSettings):
    """The settings of tools, project instructions, skills and the user's own instructions."""

    project_instructions: bool = Field(
        default=True,
        description="Whether prompts show agents that work in a folder its `AGENTS.md` files, and "
        "the user's own.",
    )
    skills: str = Field(
        default="",
        description="More folders of skills for the command line's agents, as in `PATH`.",
    )
    instructions_file: str = Field(
        default="",
        description="A file with instructions of yours for the command line's agents.",
    )
    tools: str = Field(
        default="coding",
        description="Which tools the command's agent gets for its workspace: `coding`; `reading`, "
        "which cannot write; `minimal`, the shell alone; or names with commas between them, as in "
        "`coding,apply_patch`. `--tools` comes before it.",
    )
