"""Workflows: plain Python over named nodes, whose every finished node is kept in the log."""

from agent_runtime.workflow.context import WorkflowContext
from agent_runtime.workflow.definition import Workflow

__all__ = ["Workflow", "WorkflowContext"]
