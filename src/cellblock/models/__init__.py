"""Chat models: messages, clients, and contexts that choose what a model sees."""

from .anthropic import AnthropicChatCompletionClient
from .cache import ChatCompletionCache
from .cache_stores import CHAT_CACHE_VALUE_TYPE, CacheStore, DiskCacheStore, InMemoryStore
from .cassette import CassetteChatCompletionClient
from .client import ChatCompletionClient, ModelInfo, validate_model_info
from .contexts import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from .image import Image
from .messages import (
    AssistantMessage,
    ChatCompletionTokenLogprob,
    CreateResult,
    FinishReasons,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    TopLogprob,
    UserMessage,
)
from .model_family import ModelFamily
from .openai import AzureOpenAIChatCompletionClient, OpenAIChatCompletionClient
from .replay import ReplayChatCompletionClient
from .tool_schema import ParametersSchema, ToolSchema

__all__ = [
    "CHAT_CACHE_VALUE_TYPE",
    "AnthropicChatCompletionClient",
    "AssistantMessage",
    "AzureOpenAIChatCompletionClient",
    "BufferedChatCompletionContext",
    "CacheStore",
    "CassetteChatCompletionClient",
    "ChatCompletionCache",
    "ChatCompletionClient",
    "ChatCompletionContext",
    "ChatCompletionTokenLogprob",
    "CreateResult",
    "DiskCacheStore",
    "FinishReasons",
    "FunctionCall",
    "FunctionExecutionResult",
    "FunctionExecutionResultMessage",
    "HeadAndTailChatCompletionContext",
    "Image",
    "InMemoryStore",
    "LLMMessage",
    "ModelFamily",
    "ModelInfo",
    "OpenAIChatCompletionClient",
    "ParametersSchema",
    "ReplayChatCompletionClient",
    "RequestUsage",
    "SystemMessage",
    "TokenLimitedChatCompletionContext",
    "ToolSchema",
    "TopLogprob",
    "UnboundedChatCompletionContext",
    "UserMessage",
    "validate_model_info",
]
