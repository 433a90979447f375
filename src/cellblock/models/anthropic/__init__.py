"""Client of Anthropic's messages interface."""

from .client import AnthropicArguments, AnthropicChatCompletionClient

__all__ = ["AnthropicArguments", "AnthropicChatCompletionClient"]
