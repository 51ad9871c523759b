"""The names of OpenTelemetry's semantic conventions for GenAI, and our own.

They are those of the package opentelemetry-semantic-conventions 0.66b2, which a test compares.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
DIMENSIONS = "gen_ai.embeddings.dimension.count"
ERROR_TYPE = "error.type"

# Contents: only on request.
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
RETRIEVAL_QUERY = "gen_ai.retrieval.query.text"

# Metrics.
DURATION = "gen_ai.client.operation.duration"
TIME_TO_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"

# Ours.
RUN_ID = "agent_runtime.run.id"
RUN_RESUMED = "agent_runtime.run.resumed"
RUN_STATUS = "agent_runtime.run.status"
STOP_REASON = "agent_runtime.run.stop_reason"
RUN_STEPS = "agent_runtime.run.steps"
OUTCOME = "agent_runtime.outcome"
COST = "agent_runtime.cost"
MEMORY_TOKENS = "agent_runtime.memory.tokens"
MEMORY_AGAIN = "agent_runtime.memory.again"
RECALL_FOUND = "agent_runtime.recall.found"
COMMIT_NODES = "agent_runtime.commit.nodes"
COMMIT_EVENTS = "agent_runtime.commit.events"

PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere_chat": "cohere",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers that litellm names otherwise."""


def provider_and_model(name: str) -> tuple[str, str]:
    """Return the provider and the model that a model's name says, in the conventions' words."""
    # Of several models, the preferred one is what was asked for.
    first = name.partition(",")[0]
    provider, slash, model = first.partition("/")
    if not slash:
        return "unknown", first
    # litellm's way to choose the API of OpenAI is no part of the model's name.
    return PROVIDERS.get(provider, provider), model.removeprefix("responses/")
