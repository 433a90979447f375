"""Changes to the messages that an agent of a chat sees: limits, names, compression."""

from .agent_capability import AgentCapability
from .content_name import TextMessageContentName
from .history_limiter import MessageHistoryLimiter
from .message_transform import MessageTransform
from .text_compressor import TextCompressor, TextMessageCompressor
from .token_limiter import MessageTokenLimiter
from .transform_messages import TransformMessages

__all__ = [
    "AgentCapability",
    "MessageHistoryLimiter",
    "MessageTokenLimiter",
    "MessageTransform",
    "TextCompressor",
    "TextMessageCompressor",
    "TextMessageContentName",
    "TransformMessages",
]
