"""What AutoGen has and Cellblock does not, with advice on what to do instead.

A row has a module of AutoGen and, by advice, the names that are not offered. `*` means the whole
module, with the modules below it.
"""

from __future__ import annotations

_USE_TOOLS = "Register a function of yours as a tool."
_USE_CLIENT = (
    'Most services speak OpenAI\'s protocol: set "base_url", and "api_type" for Azure or Anthropic.'
)
_USE_BASE_URL = (
    "Most services speak OpenAI's protocol: use OpenAIChatCompletionClient with base_url and "
    "model_info."
)
_NO_RETRIEVAL = "Search your documents in a function of yours, and register it as a tool."
_NO_IMAGES = "Put the images into the content of messages, as parts of type image_url."
_NO_MEMORY = "Put what an agent should know into its model_context."
_NO_TUNING = "Ask models with OpenAIWrapper."
_NESTED_TEAM = "A team can be a participant of another team instead."
_NO_GUARDS = "Check messages in a reply function, or in a hook of register_hook."
_ONE_PROCESS = "Agents run in one process: use SingleThreadedAgentRuntime and RoutedAgent."
_NO_LOGS = "The events of an agent's run_stream say what it did."
_OWN_SPANS = "Agents and tools begin their spans themselves."
_USE_CONFIGURATION = "Pass the parameters of the class itself."
_DISK_STORE = "Pass a folder, or a DiskCacheStore, as the store of ChatCompletionCache."
_FIXED_IN_CODE = "Replace the call by code of yours."
_RUN_EVENTS = (
    "ChatResult has the messages and the cost; models.CassetteChatCompletionClient records."
)

_VERSION_2: dict[str, dict[str, str]] = {
    "autogen": {
        _NO_TUNING: "ChatCompletion Completion",
    },
    "autogen.agentchat.contrib": {
        _NO_RETRIEVAL: (
            "graph_rag qdrant_retrieve_user_proxy_agent retrieve_assistant_agent "
            "retrieve_user_proxy_agent vectordb"
        ),
        _NO_IMAGES: "img_utils llava_agent multimodal_conversable_agent",
        "Use AssistantAgent and a UserProxyAgent that runs its code.": (
            "gpt_assistant_agent math_user_proxy_agent"
        ),
        "Register nested chats (register_nested_chats) instead.": (
            "agent_builder agent_eval agent_optimizer captainagent"
        ),
        _USE_TOOLS: "llamaindex_conversable_agent text_analyzer_agent web_surfer",
    },
    "autogen.agentchat.contrib.capabilities": {
        "Change messages with register_hook, or with TransformMessages.": (
            "teachability generate_images vision_capability transforms_util"
        )
    },
    "autogen.agentchat.contrib.capabilities.text_compressors": {
        "Write a class with compress_text.": "LLMLingua IMPORT_ERROR"
    },
    "autogen.agentchat.contrib.gpt_assistant_agent": {
        "Use AssistantAgent and a UserProxyAgent that runs its code.": "*"
    },
    "autogen.agentchat.contrib.retrieve_user_proxy_agent": {_NO_RETRIEVAL: "*"},
    "autogen.agentchat.contrib.retrieve_assistant_agent": {_NO_RETRIEVAL: "*"},
    "autogen.agentchat.contrib.qdrant_retrieve_user_proxy_agent": {_NO_RETRIEVAL: "*"},
    "autogen.agentchat.contrib.vectordb": {_NO_RETRIEVAL: "*"},
    "autogen.agentchat.contrib.graph_rag": {_NO_RETRIEVAL: "*"},
    "autogen.agentchat.contrib.img_utils": {_NO_IMAGES: "*"},
    "autogen.agentchat.contrib.llava_agent": {_NO_IMAGES: "*"},
    "autogen.agentchat.contrib.multimodal_conversable_agent": {_NO_IMAGES: "*"},
    "autogen.agentchat.group": {"Use NestedChatTarget.": "GroupChatConfig GroupChatTarget"},
    "autogen.agentchat.group.guardrails": {_NO_GUARDS: "*"},
    "autogen.agentchat.group.safeguards": {_NO_GUARDS: "*"},
    "autogen.agentchat.group.targets.group_chat_target": {"Use NestedChatTarget.": "*"},
    "autogen.agentchat.utils": {_FIXED_IN_CODE: "consolidate_chat_info parse_tags_from_content"},
    "autogen.browser_utils": {_USE_TOOLS: "*"},
    "autogen.cache": {"Use Cache.disk.": "cache_factory disk_cache in_memory_cache"},
    "autogen.cache.cache_factory": {"Use Cache.disk.": "*"},
    "autogen.cache.cosmos_db_cache": {"Use Cache.disk.": "*"},
    "autogen.cache.disk_cache": {"Use Cache.disk.": "*"},
    "autogen.cache.in_memory_cache": {"Use Cache.disk.": "*"},
    "autogen.cache.redis_cache": {"Use Cache.disk.": "*"},
    "autogen.code_utils": {
        "Ask an AssistantAgent to write the code.": (
            "PassAssertionFilter eval_function_completions generate_assertions generate_code "
            "implement improve_code improve_function"
        ),
        _FIXED_IN_CODE: "WORKING_DIR get_powershell_command timeout_handler",
    },
    "autogen.coding.func_with_reqs": {"Use format_functions_for_prompt.": "P T to_stub"},
    "autogen.coding.kubernetes": {"Use DockerCommandLineCodeExecutor.": "*"},
    "autogen.coding.utils": {"Executors do this themselves.": "*"},
    "autogen.environments": {
        "Use SystemPythonEnvironment, or an executor with virtual_env_context.": (
            "VenvPythonEnvironment"
        )
    },
    "autogen.extensions": {"It is empty in AutoGen.": "*"},
    "autogen.formatting_utils": {"Print the text without colours.": "*"},
    "autogen.function_utils": {_FIXED_IN_CODE: "T"},
    "autogen.graph_utils": {_FIXED_IN_CODE: "has_self_loops"},
    "autogen.io": {"Write an IOStream of yours.": "IOWebsockets"},
    "autogen.io.websockets": {"Write an IOStream of yours.": "*"},
    "autogen.logger": {_RUN_EVENTS: "*"},
    "autogen.math_utils": {_NO_TUNING: "solve_problem"},
    "autogen.oai": {
        _NO_TUNING: "ChatCompletion Completion",
        _USE_CLIENT: "AnthropicClient CohereClient GeminiClient GroqClient MistralAIClient",
    },
    "autogen.oai.client": {
        _USE_CLIENT: "OpenAIClient PlaceHolderClient OAI_PRICE1K",
    },
    "autogen.oai.client_utils": {_USE_CLIENT: "*"},
    "autogen.oai.completion": {_NO_TUNING: "*"},
    **{
        f"autogen.oai.{service}": {_USE_CLIENT: "*"}
        for service in (
            "anthropic bedrock cerebras cohere gemini groq mistral ollama together"
        ).split()
    },
    "autogen.oai.openai_utils": {
        "OpenAI's assistants are not offered. Use AssistantAgent.": (
            "create_gpt_assistant create_gpt_vector_store detect_gpt_assistant_api_version "
            "retrieve_assistants_by_name update_gpt_assistant"
        ),
        "Write the entry of config_list yourself.": ("NON_CACHE_KEY OAI_PRICE1K get_key"),
    },
    "autogen.oai.rate_limiters": {"Set api_rate_limit in the entry of config_list.": "*"},
    "autogen.retrieve_utils": {_NO_RETRIEVAL: "*"},
    "autogen.runtime_logging": {
        _RUN_EVENTS: (
            "F LLMConfig autogen_logger is_logging log_chat_completion log_event log_function_use "
            "log_new_agent log_new_client log_new_wrapper logger"
        )
    },
    "autogen.token_count_utils": {"Use MessageTokenLimiter.": "*"},
    "autogen.types": {"Messages are plain dicts.": "*"},
    "autogen.version": {"autogen.__version__ is AutoGen's.": "*"},
}

_VERSION_7: dict[str, dict[str, str]] = {
    "autogen_core": {
        _ONE_PROCESS: (
            "Agent AgentInstantiationContext AgentMetadata AgentProxy BaseAgent ClosureAgent "
            "ClosureContext JSON_DATA_CONTENT_TYPE MessageHandlerContext MessageSerializer "
            "PROTOBUF_DATA_CONTENT_TYPE Subscription SubscriptionInstantiationContext "
            "TypePrefixSubscription UnknownPayload try_get_known_serializers_for_type"
        ),
        "Derive the class from cellblock.Component.": (
            "ComponentSchemaType ComponentType is_component_class is_component_instance"
        ),
        _OWN_SPANS: "trace_create_agent_span trace_invoke_agent_span trace_tool_span",
    },
    "autogen_core.code_executor": {"Annotate with str | ImportFromModule | Alias.": "Import"},
    "autogen_core.exceptions": {
        _ONE_PROCESS: "NotAccessibleError",
    },
    "autogen_core.logging": {_NO_LOGS: "*"},
    "autogen_core.memory": {_NO_MEMORY: "*"},
    "autogen_core.model_context": {
        "save_state returns a plain dict.": "ChatCompletionContextState"
    },
    "autogen_core.models": {"Use ModelInfo.": "ModelCapabilities"},
    "autogen_core.tool_agent": {"Pass the tools to an AssistantAgent.": "*"},
    "autogen_core.tools": {
        "Tools and workbenches do not stream here. Use BaseTool.": (
            "BaseStreamTool BaseToolWithState StreamTool"
        )
    },
    "autogen_core.utils": {_FIXED_IN_CODE: "*"},
    "autogen_ext.agents": {
        "Use an AssistantAgent with tools of yours.": "*",
    },
    "autogen_ext.auth": {"Pass api_key, or a token provider of the service's SDK.": "*"},
    "autogen_ext.cache_store": {_DISK_STORE: "redis"},
    "autogen_ext.cache_store.diskcache": {_USE_CONFIGURATION: "DiskCacheStoreConfig T"},
    "autogen_ext.cache_store.redis": {_DISK_STORE: "*"},
    "autogen_ext.code_executors": {
        "Use cellblock.SandboxCommandLineCodeExecutor, which needs no container engine.": (
            "create_default_code_executor"
        )
    },
    "autogen_ext.code_executors.docker_jupyter": {
        "Use JupyterServerCodeExecutor.": "JupyterKernelClient"
    },
    "autogen_ext.experimental": {_NO_MEMORY: "*"},
    "autogen_ext.memory": {_NO_MEMORY: "*"},
    "autogen_ext.models.anthropic": {
        _USE_CONFIGURATION: (
            "AnthropicBedrockClientConfiguration AnthropicBedrockClientConfigurationConfigModel "
            "AnthropicClientConfiguration AnthropicClientConfigurationConfigModel "
            "BaseAnthropicChatCompletionClient CreateArgumentsConfigModel"
        ),
        _USE_BASE_URL: "AnthropicBedrockChatCompletionClient BedrockInfo",
    },
    "autogen_ext.models.anthropic.config": {_USE_CONFIGURATION: "*"},
    **{
        f"autogen_ext.models.{service}": {_USE_BASE_URL: "*"}
        for service in ("azure", "llama_cpp", "ollama", "semantic_kernel")
    },
    "autogen_ext.models.openai": {
        _USE_CONFIGURATION: (
            "AZURE_OPENAI_USER_AGENT AzureOpenAIClientConfigurationConfigModel "
            "BaseOpenAIChatCompletionClient BaseOpenAIClientConfigurationConfigModel "
            "CreateArgumentsConfigModel OpenAIClientConfigurationConfigModel config"
        )
    },
    "autogen_ext.models.openai.config": {_USE_CONFIGURATION: "*"},
    "autogen_ext.runtimes": {_ONE_PROCESS: "*"},
    "autogen_ext.teams": {_NESTED_TEAM: "*"},
    "autogen_ext.tools.azure": {_USE_TOOLS: "*"},
    "autogen_ext.tools.graphrag": {_USE_TOOLS: "*"},
    "autogen_ext.tools.http": {_USE_TOOLS: "*"},
    "autogen_ext.tools.langchain": {_USE_TOOLS: "*"},
    "autogen_ext.tools.mcp": {_USE_TOOLS: "*"},
    "autogen_ext.tools.semantic_kernel": {_USE_TOOLS: "*"},
    "autogen_ext.ui": {"Use Console, which prints colours on a terminal.": "*"},
    "autogen_agentchat.agents": {
        "Change messages with a model_context of yours.": (
            "MessageFilterAgent MessageFilterConfig PerSourceFilter"
        ),
        _NESTED_TEAM: "SocietyOfMindAgent",
    },
    "autogen_agentchat.messages": {
        _NO_MEMORY: "MemoryQueryEvent",
        "Use StructuredMessage.": "StructuredContentType StructuredMessageFactory",
    },
    "autogen_agentchat.state": {"save_state returns a plain dict.": "*"},
    "autogen_agentchat.teams": {
        _NESTED_TEAM: (
            "DiGraph DiGraphBuilder DiGraphEdge DiGraphNode GraphFlow MagenticOneGroupChat"
        )
    },
    "autogen_agentchat.tools": {
        "Write a function that calls the agent's or the team's run, as a FunctionTool.": "*"
    },
    "autogen_agentchat.utils": {_FIXED_IN_CODE: "*"},
}

ADVICE: dict[str, str] = {
    module if name == "*" else f"{module}.{name}": advice
    for module, rows in {**_VERSION_2, **_VERSION_7}.items()
    for advice, names in rows.items()
    for name in names.split()
}
"""Advice by the full name of each missing class, function or module."""

METHODS = {
    "Cache.cosmos_db": "Use Cache.disk.",
    "Cache.redis": "Use Cache.disk.",
}
"""Advice on methods that are there and refuse to work."""
