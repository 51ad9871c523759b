"""The settings by subject, in the order in which people read them."""

from __future__ import annotations

from agent_runtime_config.settings import Settings

SUBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "The model",
        (
            "model",
            "context_window",
            "response_reserve",
            "max_output_tokens",
            "repeat_system_prompt",
            "fallback_",
            "first_byte_timeout",
            "idle_timeout",
            "price_",
            "forbid_real_models",
        ),
    ),
    ("Where state is kept", ("database_", "object_store_url", "synchronous", "user")),
    (
        "Limits",
        (
            "max_steps",
            "max_message_chars",
            "max_inbox_messages",
            "max_user_inbox_messages",
            "max_title_chars",
            "run_timeout",
            "budget_",
            "thread_budget_",
            "day_budget_",
            "unknown_price",
            "loop_limit",
            "plan_stall_limit",
        ),
    ),
    (
        "Tools and files",
        (
            "tools",
            "tool_",
            "max_result_tokens",
            "max_file_bytes",
            "protected_paths",
            "hidden_paths",
            "project_instructions",
            "instructions_file",
            "skills",
            "sandbox",
            "allow_web",
            "web_",
            "mcp_",
            "command_environment",
        ),
    ),
    ("People and plans", ("approve", "answer_timeout", "plan_phases")),
    ("Sub-agents", ("sub_agent_", "delegation_", "background_")),
    (
        "Memory",
        (
            "last_messages",
            "timezone",
            "observational_memory",
            "observer_",
            "reflector_",
            "constraint_share",
            "activat",
            "node_memory_",
        ),
    ),
    ("Semantic recall", ("embedder_", "semantic_recall_", "reranker_")),
    (
        "Processes and the queue",
        ("max_runs", "sweep", "drain_timeout", "pause_timeout", "queue_"),
    ),
    ("The service and telemetry", ("service_", "metrics_", "telemetry_")),
    ("Everything else", ()),
)
"""The subjects, with what the names of their settings begin with; the last takes the rest."""


def subjects() -> dict[str, list[str]]:
    """Return the names of the settings by subject, each under the first that fits."""
    found: dict[str, list[str]] = {title: [] for title, _ in SUBJECTS}
    own = Settings.__annotations__
    # Those that exist for each role come last.
    for field in sorted(Settings.model_fields, key=lambda one: one not in own):
        fitting = (title for title, prefixes in SUBJECTS if field.startswith(prefixes))
        found[next(fitting, SUBJECTS[-1][0])].append(field)
    return {title: fields for title, fields in found.items() if fields}
