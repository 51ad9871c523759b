"""Workflows: plain Python over named nodes, whose every finished node is kept in the log."""

from .context import WorkflowContext
from .definition import Workflow

__all__ = ["Workflow", "WorkflowContext"]
