"""The table of AutoGen's modules: their names, and where ours are.

A row has a module of AutoGen and, by module of this package ("" is the package itself), the names
that the module has. `OLD=NEW` means that a name is another one here. The halves of the table are
those of AutoGen 0.2.40, with some of AG2 0.9, and of AutoGen 0.7.5.
"""

from __future__ import annotations

TOP_MODULES = ("autogen", "autogen_core", "autogen_ext", "autogen_agentchat")

_CONFIG_LISTS = (
    "config_list_from_dotenv config_list_from_json config_list_from_models "
    "config_list_gpt4_gpt35 config_list_openai_aoai filter_config get_config_list"
)
_ERRORS = (
    "AgentNameConflict InvalidCarryOverType NoEligibleSpeaker SenderRequired UndefinedNextAgent"
)
_FUNCTIONS = (
    "Alias FunctionWithRequirements FunctionWithRequirementsStr ImportFromModule with_requirements"
)
_TARGETS = (
    "AgentNameTarget AgentTarget AskUserTarget NestedChatTarget RandomAgentTarget "
    "RevertToUserTarget StayTarget TerminateTarget TransitionTarget"
)
_MANAGER_TARGETS = (
    "GroupManagerSelectionMessageContextStr GroupManagerSelectionMessageString GroupManagerTarget"
)
_CONDITIONS = {
    "available_condition": "ExpressionAvailableCondition StringAvailableCondition",
    "context_condition": "ExpressionContextCondition StringContextCondition",
    "context_expression": "ContextExpression",
    "context_str": "ContextStr",
    "handoffs": "Handoffs",
    "llm_condition": "ContextStrLLMCondition StringLLMCondition",
    "on_condition": "OnCondition",
    "on_context_condition": "OnContextCondition",
    "reply_result": "ReplyResult",
}
_PATTERNS = "AutoPattern DefaultPattern ManualPattern RandomPattern RoundRobinPattern"
_GROUP_CHATS = "a_initiate_group_chat a_run_group_chat initiate_group_chat run_group_chat"
_DOCKER_EXECUTOR, _LOCAL_EXECUTOR = "DockerCommandLineCodeExecutor", "LocalCommandLineCodeExecutor"
_OPENAI_CLIENTS = "AzureOpenAIChatCompletionClient OpenAIChatCompletionClient"

_VERSION_2: dict[str, dict[str, str]] = {
    "autogen": {
        "chat": (
            "Agent AssistantAgent Cache ChatResult ConversableAgent GroupChat GroupChatManager "
            "LLMConfig ModelClient OpenAIWrapper UserProxyAgent gather_usage_summary "
            f"initiate_chats register_function {_CONFIG_LISTS}"
        ),
        "chat.errors": _ERRORS,
        "chat.code_utils": "DEFAULT_MODEL FAST_MODEL",
        "chat.handoffs": "UpdateSystemMessage",
        "chat.groups.patterns": _GROUP_CHATS,
    },
    "autogen.agentchat": {
        "chat": (
            "Agent AssistantAgent ChatResult ConversableAgent GroupChat GroupChatManager "
            "UserProxyAgent gather_usage_summary initiate_chats register_function"
        ),
        "chat.conversations.chat_queue": "a_initiate_chats",
        "chat.handoffs": "UpdateSystemMessage",
        "chat.groups.patterns": _GROUP_CHATS,
    },
    "autogen.agentchat.agent": {"chat.agent": "Agent LLMAgent"},
    "autogen.agentchat.assistant_agent": {"chat": "AssistantAgent ConversableAgent"},
    "autogen.agentchat.chat": {
        "chat": "ChatResult initiate_chats",
        "chat.conversations.chat_queue": "a_initiate_chats",
    },
    "autogen.agentchat.contrib": {},
    "autogen.agentchat.contrib.capabilities": {},
    "autogen.agentchat.contrib.capabilities.agent_capability": {
        "chat.transforms": "AgentCapability"
    },
    "autogen.agentchat.contrib.capabilities.text_compressors": {
        "chat.transforms": "TextCompressor"
    },
    "autogen.agentchat.contrib.capabilities.transform_messages": {
        "chat.transforms": "TransformMessages"
    },
    "autogen.agentchat.contrib.capabilities.transforms": {
        "chat.transforms": (
            "MessageHistoryLimiter MessageTokenLimiter MessageTransform TextMessageCompressor "
            "TextMessageContentName"
        )
    },
    "autogen.agentchat.contrib.society_of_mind_agent": {"chat": "SocietyOfMindAgent"},
    "autogen.agentchat.conversable_agent": {
        "chat": "Agent ChatResult ConversableAgent OpenAIWrapper register_function"
    },
    # AG2 0.9
    "autogen.environments": {
        "chat.tools.python_code_tool": (
            "DockerPythonEnvironment SystemPythonEnvironment WorkingDirectory"
        )
    },
    "autogen.tools.experimental": {"chat.tools.python_code_tool": "PythonCodeExecutionTool"},
    "autogen.agentchat.group": {
        "chat.handoffs": " ".join([_TARGETS, *_CONDITIONS.values()]),
        "chat.tools.context_variables": "ContextVariables",
    },
    "autogen.agentchat.group.context_variables": {
        "chat.tools.context_variables": "ContextVariables"
    },
    "autogen.agentchat.group.multi_agent_chat": {"chat.groups.patterns": _GROUP_CHATS},
    "autogen.agentchat.group.patterns": {"chat.groups.patterns": f"Pattern {_PATTERNS}"},
    "autogen.agentchat.group.patterns.pattern": {"chat.groups.patterns": "DefaultPattern Pattern"},
    **{
        f"autogen.agentchat.group.patterns.{name}": {"chat.groups.patterns": pattern}
        for name, pattern in (
            ("auto", "AutoPattern"),
            ("manual", "ManualPattern"),
            ("random", "RandomPattern"),
            ("round_robin", "RoundRobinPattern"),
        )
    },
    "autogen.agentchat.group.targets": {},
    "autogen.agentchat.group.targets.group_manager_target": {"chat.handoffs": _MANAGER_TARGETS},
    "autogen.agentchat.group.targets.transition_target": {"chat.handoffs": _TARGETS},
    **{
        f"autogen.agentchat.group.{name}": {"chat.handoffs": names}
        for name, names in _CONDITIONS.items()
    },
    "autogen.agentchat.groupchat": {
        "chat": "Agent ConversableAgent GroupChat GroupChatManager",
        "chat.errors": "AgentNameConflict NoEligibleSpeaker UndefinedNextAgent",
    },
    "autogen.agentchat.user_proxy_agent": {"chat": "ConversableAgent UserProxyAgent"},
    "autogen.agentchat.utils": {"chat": "gather_usage_summary"},
    "autogen.cache": {"chat.models.cache": "AbstractCache Cache"},
    "autogen.cache.abstract_cache_base": {"chat.models.cache": "AbstractCache"},
    "autogen.cache.cache": {"chat.models.cache": "AbstractCache Cache"},
    "autogen.code_utils": {
        "chat.code_utils": (
            "CODE_BLOCK_PATTERN DEFAULT_MODEL DEFAULT_TIMEOUT FAST_MODEL PATH_SEPARATOR "
            "PYTHON_VARIANTS SENTINEL TIMEOUT_MSG UNKNOWN WIN32 check_can_use_docker_or_throw "
            "content_str create_virtual_env decide_use_docker execute_code extract_code "
            "in_docker_container infer_lang is_docker_running"
        )
    },
    "autogen.coding": {
        "chat.coding": (
            "CodeBlock CodeExecutor CodeExecutorFactory CodeExtractor CodeResult "
            f"{_DOCKER_EXECUTOR} {_LOCAL_EXECUTOR} MarkdownCodeExtractor"
        )
    },
    "autogen.coding.base": {
        "chat.coding.base": (
            "CodeBlock CodeExecutionConfig CodeExecutor CodeExtractor CodeResult "
            "CommandLineCodeResult IPythonCodeResult"
        )
    },
    "autogen.coding.docker_commandline_code_executor": {
        "chat.coding.docker_commandline_code_executor": _DOCKER_EXECUTOR
    },
    "autogen.coding.factory": {"chat.coding.factory": "CodeExecutorFactory"},
    "autogen.coding.func_with_reqs": {"chat.coding.func_with_reqs": _FUNCTIONS},
    "autogen.coding.jupyter": {
        "chat.coding.jupyter": (
            "DockerJupyterServer EmbeddedIPythonCodeExecutor JupyterClient JupyterCodeExecutor "
            "JupyterConnectable JupyterConnectionInfo LocalJupyterServer"
        )
    },
    "autogen.coding.local_commandline_code_executor": {
        "chat.coding.local_commandline_code_executor": (
            f"{_LOCAL_EXECUTOR} LocalCommandlineCodeExecutor={_LOCAL_EXECUTOR}"
        ),
        "chat.coding.base": "CommandLineCodeResult CommandlineCodeResult=CommandLineCodeResult",
    },
    "autogen.coding.markdown_code_extractor": {
        "chat.coding.markdown_code_extractor": "MarkdownCodeExtractor"
    },
    "autogen.exception_utils": {"chat.errors": _ERRORS},
    "autogen.function_utils": {
        "chat.tools.function_schema": (
            "Function Parameters ToolFunction get_default_values get_function_schema "
            "get_missing_annotations get_param_annotations get_parameter_json_schema "
            "get_parameters get_required_params"
        ),
        "chat.tools.function_signature": (
            "get_typed_annotation get_typed_return_annotation get_typed_signature"
        ),
        "chat.tools.function_arguments": (
            "get_load_param_if_needed_function load_basemodels_if_needed serialize_to_str"
        ),
    },
    "autogen.graph_utils": {
        "chat.groups.speaker_transitions": (
            "check_graph_validity invert_disallowed_to_allowed visualize_speaker_transitions_dict"
        )
    },
    "autogen.io": {"chat.io": "IOConsole IOStream InputStream OutputStream"},
    "autogen.io.base": {"chat.io": "IOStream InputStream OutputStream"},
    "autogen.io.console": {"chat.io": "IOConsole"},
    "autogen.llm_config": {"chat": "LLMConfig"},  # of AG2
    "autogen.math_utils": {
        "chat.math_utils": (
            "eval_math_responses get_answer is_equiv is_equiv_chain_of_thought "
            "last_boxed_only_string remove_boxed voting_counts"
        )
    },
    "autogen.oai": {"chat": f"Cache ModelClient OpenAIWrapper {_CONFIG_LISTS}"},
    "autogen.oai.client": {"chat": "ModelClient OpenAIWrapper"},
    "autogen.oai.openai_utils": {
        "chat": _CONFIG_LISTS,
        "chat.models.config_lists": "DEFAULT_AZURE_API_VERSION get_config",
    },
    "autogen.runtime_logging": {
        "chat.runtime_logging": "get_connection logging_enabled start stop"
    },
}

_VERSION_7: dict[str, dict[str, str]] = {
    "autogen_core": {
        "": (
            "CancellationToken Component ComponentBase=Component ComponentFromConfig=Component "
            "ComponentLoader=Component ComponentModel ComponentToConfig=Component"
        ),
        "models": "CacheStore FunctionCall Image InMemoryStore",
        "message_runtime": (
            "AgentId AgentRuntime AgentType DefaultInterventionHandler DefaultSubscription "
            "DefaultTopicId DropMessage InterventionHandler MessageContext RoutedAgent "
            "SingleThreadedAgentRuntime TopicId TypeSubscription default_subscription event "
            "message_handler rpc type_subscription"
        ),
    },
    "autogen_core.code_executor": {"": f"CodeBlock CodeExecutor CodeResult {_FUNCTIONS}"},
    "autogen_core.exceptions": {
        "message_runtime": "CantHandleException MessageDroppedException UndeliverableException"
    },
    "autogen_core.model_context": {
        "models": (
            "BufferedChatCompletionContext ChatCompletionContext HeadAndTailChatCompletionContext "
            "TokenLimitedChatCompletionContext UnboundedChatCompletionContext"
        )
    },
    "autogen_core.models": {
        "models": (
            "AssistantMessage ChatCompletionClient ChatCompletionTokenLogprob CreateResult "
            "FinishReasons FunctionExecutionResult FunctionExecutionResultMessage LLMMessage "
            "ModelFamily ModelInfo RequestUsage SystemMessage TopLogprob UserMessage "
            "validate_model_info"
        )
    },
    "autogen_core.tools": {
        "tools": (
            "BaseTool FunctionTool ImageResultContent StaticWorkbench "
            "StaticStreamWorkbench=StaticWorkbench TextResultContent Tool=BaseTool ToolOverride "
            "ToolResult Workbench"
        ),
        "models": "ParametersSchema ToolSchema",
    },
    "autogen_ext": {},
    "autogen_ext.cache_store": {},
    "autogen_ext.cache_store.diskcache": {"models": "DiskCacheStore"},
    "autogen_ext.code_executors": {},
    "autogen_ext.code_executors._common": {"": f"CodeResult CommandLineCodeResult {_FUNCTIONS}"},
    "autogen_ext.code_executors.azure": {"": "ACADynamicSessionsCodeExecutor"},
    "autogen_ext.code_executors.docker": {"": _DOCKER_EXECUTOR},
    "autogen_ext.code_executors.docker_jupyter": {
        "": (
            "DockerJupyterCodeExecutor DockerJupyterServer JupyterClient "
            "DockerJupyterCodeResult=JupyterCodeResult"
        )
    },
    "autogen_ext.code_executors.jupyter": {"": "JupyterCodeExecutor JupyterCodeResult"},
    "autogen_ext.code_executors.local": {"": f"CommandLineCodeResult {_LOCAL_EXECUTOR}"},
    "autogen_ext.models": {},
    "autogen_ext.models.anthropic": {"models": "AnthropicChatCompletionClient"},
    "autogen_ext.models.cache": {"models": "CHAT_CACHE_VALUE_TYPE ChatCompletionCache"},
    "autogen_ext.models.openai": {"models": _OPENAI_CLIENTS},
    "autogen_ext.models.replay": {"models": "ReplayChatCompletionClient"},
    "autogen_ext.tools": {},
    "autogen_ext.tools.code_execution": {
        "tools": "CodeExecutionInput CodeExecutionResult PythonCodeExecutionTool"
    },
    "autogen_agentchat": {},
    "autogen_agentchat.agents": {
        "agents": (
            "ApprovalFuncType ApprovalRequest ApprovalResponse AssistantAgent BaseChatAgent "
            "CodeExecutorAgent UserProxyAgent"
        )
    },
    "autogen_agentchat.base": {
        "agents": "ChatAgent Handoff Response TaskResult TaskRunner",
        "teams": (
            "AndTerminationCondition OrTerminationCondition Team TerminatedException "
            "TerminationCondition"
        ),
    },
    "autogen_agentchat.conditions": {
        "teams": (
            "ExternalTermination FunctionCallTermination FunctionalTermination HandoffTermination "
            "MaxMessageTermination SourceMatchTermination StopMessageTermination "
            "TextMentionTermination TextMessageTermination TimeoutTermination "
            "TokenUsageTermination"
        )
    },
    "autogen_agentchat.messages": {
        "agents": (
            "AgentEvent=BaseAgentEvent BaseAgentEvent BaseChatMessage BaseMessage "
            "BaseTextChatMessage ChatMessage=BaseChatMessage CodeExecutionEvent "
            "CodeGenerationEvent HandoffMessage MessageFactory ModelClientStreamingChunkEvent "
            "MultiModalMessage SelectSpeakerEvent SelectorEvent StopMessage StructuredMessage "
            "TextMessage ThoughtEvent ToolCallExecutionEvent ToolCallRequestEvent "
            "ToolCallSummaryMessage UserInputRequestedEvent"
        )
    },
    "autogen_agentchat.teams": {
        "teams": "BaseGroupChat RoundRobinGroupChat SelectorGroupChat Swarm"
    },
    "autogen_agentchat.ui": {"teams": "Console UserInputManager"},
}

TABLE = {**_VERSION_2, **_VERSION_7}

CONSTANTS: dict[str, dict[str, str]] = {
    "autogen": {"__version__": "0.2.40"},
    "autogen_core": {
        "__version__": "0.7.5",
        "EVENT_LOGGER_NAME": "autogen_core.events",
        "ROOT_LOGGER_NAME": "autogen_core",
        "TRACE_LOGGER_NAME": "autogen_core.trace",
    },
    "autogen_ext": {"__version__": "0.7.5"},
    "autogen_agentchat": {
        "__version__": "0.7.5",
        "EVENT_LOGGER_NAME": "autogen_agentchat.events",
        "TRACE_LOGGER_NAME": "autogen_agentchat",
    },
}
"""Texts that AutoGen's modules have, by module and name."""
