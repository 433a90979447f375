"""The classes that a saved configuration may name: the allow-list of `components`.

A row has a module of this package, the public package of its classes, the AutoGen module whose
configurations are accepted as well ("" if there is none), and the classes.
"""

from __future__ import annotations

from collections.abc import Iterator

_CLASSES: tuple[tuple[str, str, str, str], ...] = (
    ("executors.command_line.sandbox", "cellblock", "", "SandboxCommandLineCodeExecutor"),
    ("executors.session.sandbox", "cellblock", "", "SandboxSessionCodeExecutor"),
    (
        "executors.command_line.local",
        "cellblock",
        "autogen_ext.code_executors.local",
        "LocalCommandLineCodeExecutor",
    ),
    (
        "executors.command_line.docker",
        "cellblock",
        "autogen_ext.code_executors.docker",
        "DockerCommandLineCodeExecutor",
    ),
    ("executors.session.docker", "cellblock", "", "DockerSessionCodeExecutor"),
    (
        "executors.jupyter.local",
        "cellblock",
        "autogen_ext.code_executors.jupyter",
        "JupyterCodeExecutor",
    ),
    ("executors.jupyter.servers.docker", "cellblock", "", "DockerJupyterServer"),
    (
        "executors.jupyter.docker",
        "cellblock",
        "autogen_ext.code_executors.docker_jupyter",
        "DockerJupyterCodeExecutor",
    ),
    ("executors.remote.azure", "cellblock", "", "AzureContainerCodeExecutor"),
    (
        "models.openai.client",
        "cellblock.models",
        "autogen_ext.models.openai",
        "OpenAIChatCompletionClient",
    ),
    (
        "models.openai.azure",
        "cellblock.models",
        "autogen_ext.models.openai",
        "AzureOpenAIChatCompletionClient",
    ),
    (
        "models.anthropic.client",
        "cellblock.models",
        "autogen_ext.models.anthropic",
        "AnthropicChatCompletionClient",
    ),
    (
        "models.replay",
        "cellblock.models",
        "autogen_ext.models.replay",
        "ReplayChatCompletionClient",
    ),
    ("models.cassette", "cellblock.models", "", "CassetteChatCompletionClient"),
    ("models.cache", "cellblock.models", "autogen_ext.models.cache", "ChatCompletionCache"),
    ("models.cache_stores", "cellblock.models", "autogen_core", "InMemoryStore"),
    (
        "models.cache_stores",
        "cellblock.models",
        "autogen_ext.cache_store.diskcache",
        "DiskCacheStore",
    ),
    (
        "models.contexts",
        "cellblock.models",
        "autogen_core.model_context",
        "UnboundedChatCompletionContext BufferedChatCompletionContext "
        "HeadAndTailChatCompletionContext TokenLimitedChatCompletionContext",
    ),
    ("tools.function_tool", "cellblock.tools", "autogen_core.tools", "FunctionTool"),
    ("tools.workbench", "cellblock.tools", "autogen_core.tools", "StaticWorkbench"),
    (
        "tools.code_execution",
        "cellblock.tools",
        "autogen_ext.tools.code_execution",
        "PythonCodeExecutionTool",
    ),
    ("tools.code_session", "cellblock.tools", "", "CodeSessionTool"),
    ("agents.approval", "cellblock.agents", "", "ApprovalRules"),
    (
        "agents.code_executor_agent",
        "cellblock.agents",
        "autogen_agentchat.agents",
        "CodeExecutorAgent",
    ),
    ("agents.assistant_agent", "cellblock.agents", "autogen_agentchat.agents", "AssistantAgent"),
    ("agents.user_proxy_agent", "cellblock.agents", "autogen_agentchat.agents", "UserProxyAgent"),
    ("teams.round_robin", "cellblock.teams", "autogen_agentchat.teams", "RoundRobinGroupChat"),
    ("teams.selector", "cellblock.teams", "autogen_agentchat.teams", "SelectorGroupChat"),
    ("teams.swarm", "cellblock.teams", "autogen_agentchat.teams", "Swarm"),
    (
        "teams.termination",
        "cellblock.teams",
        "autogen_agentchat.base",
        "AndTerminationCondition OrTerminationCondition",
    ),
    (
        "teams.conditions",
        "cellblock.teams",
        "autogen_agentchat.conditions",
        "MaxMessageTermination TextMentionTermination TextMessageTermination "
        "StopMessageTermination TokenUsageTermination TimeoutTermination HandoffTermination "
        "SourceMatchTermination FunctionCallTermination ExternalTermination",
    ),
)

# Classes of AutoGen that have another name here: provider and import path.
_RENAMED = (
    # AutoGen's short names of providers.
    *(
        (name, "cellblock.models.openai.client:OpenAIChatCompletionClient")
        for name in ("OpenAIChatCompletionClient", "openai_chat_completion_client")
    ),
    *(
        (name, "cellblock.models.openai.azure:AzureOpenAIChatCompletionClient")
        for name in ("AzureOpenAIChatCompletionClient", "azure_openai_chat_completion_client")
    ),
    ("autogen_core.tools.StaticStreamWorkbench", "cellblock.tools.workbench:StaticWorkbench"),
)


def built_in_providers() -> Iterator[tuple[str, str]]:
    """Yield each provider and the import path of its class. The first one of a class is saved."""
    for module, package, autogen, names in _CLASSES:
        for name in names.split():
            path = f"cellblock.{module}:{name}"
            yield f"{package}.{name}", path
            if autogen:
                yield f"{autogen}.{name}", path
    yield from _RENAMED
