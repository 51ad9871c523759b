"""Workflows: plain Python over named nodes; the log records every node that finished."""

from agent_runtime.workflow.definition import Workflow, WorkflowContext

__all__ = ["Workflow", "WorkflowContext"]
