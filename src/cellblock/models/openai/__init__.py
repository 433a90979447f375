"""Clients of OpenAI, Azure, and servers that speak the chat completions protocol."""

from .arguments import AzureOpenAIArguments, OpenAIArguments
from .azure import AzureOpenAIChatCompletionClient
from .client import OpenAIChatCompletionClient

__all__ = [
    "AzureOpenAIArguments",
    "AzureOpenAIChatCompletionClient",
    "OpenAIArguments",
    "OpenAIChatCompletionClient",
]
