"""ForwardingClient: the base of clients that change how another client is asked."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

from ..tracing import Attributes
from .client import ChatCompletionClient, ModelInfo
from .messages import LLMMessage, RequestUsage
from .tool_schema import ToolLike


class ForwardingClient(ChatCompletionClient, ABC):
    """Forward all but `create` and `create_stream` to `client`."""

    def __init__(self, client: ChatCompletionClient) -> None:
        self.client = client

    async def close(self) -> None:
        """See `ChatCompletionClient`."""
        await self.client.close()

    def actual_usage(self) -> RequestUsage:
        """See `ChatCompletionClient`."""
        return self.client.actual_usage()

    def total_usage(self) -> RequestUsage:
        """See `ChatCompletionClient`."""
        return self.client.total_usage()

    def count_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """See `ChatCompletionClient`."""
        return self.client.count_tokens(messages, tools=tools)

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """See `ChatCompletionClient`."""
        return self.client.remaining_tokens(messages, tools=tools)

    def span_attributes(self, extra: Mapping[str, Any]) -> Attributes:
        """See `ChatCompletionClient`."""
        return self.client.span_attributes(extra)

    @property
    def model_info(self) -> ModelInfo:
        """See `ChatCompletionClient`."""
        return self.client.model_info
