"""Chat models: messages, clients, and contexts that choose what a model sees."""

from .client import ChatCompletionClient, ModelInfo, validate_model_info
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
from .tool_schema import ParametersSchema, ToolSchema

__all__ = [
    "AssistantMessage",
    "ChatCompletionClient",
    "ChatCompletionTokenLogprob",
    "CreateResult",
    "FinishReasons",
    "FunctionCall",
    "FunctionExecutionResult",
    "FunctionExecutionResultMessage",
    "Image",
    "LLMMessage",
    "ModelInfo",
    "ParametersSchema",
    "RequestUsage",
    "SystemMessage",
    "ToolSchema",
    "TopLogprob",
    "UserMessage",
    "validate_model_info",
]
