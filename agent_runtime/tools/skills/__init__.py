"""Agent Skills: folders with a `SKILL.md`, of which an agent reads what it needs."""
