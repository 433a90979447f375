"""What agents say to each other, and the events that report what an agent does.

The names and fields are those of `autogen_agentchat.messages` 0.7.5. `CodeOutputEvent` and
`CodeApprovalEvent` are new.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import BaseModel, Field, SerializeAsAny, computed_field

from ..blocks import CodeBlock
from ..events import Stream
from ..models.image import Image
from ..models.messages import (
    FunctionCall,
    FunctionExecutionResult,
    LLMMessage,
    RequestUsage,
    UserMessage,
)
from ..results import CodeResult


class BaseMessage(BaseModel, ABC):
    """A message or an event. `to_text` returns what a person should read.

    id             identifies the message
    source         the name of the agent, or "user"
    models_usage   tokens that the model used for it
    metadata       for the caller; never shown to a model
    created_at     time in UTC
    """

    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    source: str
    models_usage: RequestUsage | None = None
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @abstractmethod
    def to_text(self) -> str:
        """Return the content as text for people."""

    def dump(self) -> Mapping[str, Any]:
        """Return the fields as JSON values."""
        return self.model_dump(mode="json")

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """Return the message that `dump` returned as `data`."""
        return cls.model_validate(data)


class BaseChatMessage(BaseMessage, ABC):
    """A message from one agent to others. Subclass it for a type of your own."""

    @abstractmethod
    def to_model_text(self) -> str:
        """Return the content as text for a model."""

    @abstractmethod
    def to_model_message(self) -> UserMessage:
        """Return the message in the form that a model reads."""


class BaseAgentEvent(BaseMessage, ABC):
    """Something that an agent did. Other agents do not see it.

    `is_transient` events are streamed, but kept in no transcript: another message repeats them.
    """

    is_transient: ClassVar[bool] = False


class BaseTextChatMessage(BaseChatMessage, ABC):
    """A message whose content is text."""

    content: str

    def to_text(self) -> str:
        """Return the content."""
        return self.content

    def to_model_text(self) -> str:
        """Return the content."""
        return self.content

    def to_model_message(self) -> UserMessage:
        """Return the message in the form that a model reads."""
        return UserMessage(content=self.content, source=self.source)


class TextMessage(BaseTextChatMessage):
    """Text."""

    type: Literal["TextMessage"] = "TextMessage"


class StopMessage(BaseTextChatMessage):
    """A request to stop the conversation."""

    type: Literal["StopMessage"] = "StopMessage"


class HandoffMessage(BaseTextChatMessage):
    """A request that agent `target` continues. `context` is what its model should see first."""

    target: str
    context: list[LLMMessage] = Field(default_factory=list[LLMMessage])
    type: Literal["HandoffMessage"] = "HandoffMessage"


class ToolCallSummaryMessage(BaseTextChatMessage):
    """The results of tool calls as text, if no model summarizes them."""

    tool_calls: list[FunctionCall]
    results: list[FunctionExecutionResult]
    type: Literal["ToolCallSummaryMessage"] = "ToolCallSummaryMessage"


class MultiModalMessage(BaseChatMessage):
    """Text and images."""

    content: list[str | Image]
    type: Literal["MultiModalMessage"] = "MultiModalMessage"

    def to_text(self) -> str:
        """Return the texts, with "<image>" for each image."""
        return "\n".join(part if isinstance(part, str) else "<image>" for part in self.content)

    def to_model_text(self, image_placeholder: str | None = "[image]") -> str:
        """Return the texts, with `image_placeholder` for each image (None: its Base64 text)."""
        parts = (
            part if isinstance(part, str) else image_placeholder or part.to_base64()
            for part in self.content
        )
        return "\n".join(parts)

    def to_model_message(self) -> UserMessage:
        """Return the message in the form that a model reads."""
        return UserMessage(content=self.content, source=self.source)


ContentT = TypeVar("ContentT", bound=BaseModel, covariant=True)


class StructuredMessage(BaseChatMessage, Generic[ContentT]):
    """A message whose content is a pydantic model.

    `format_string` makes text of it, such as "{name} is {age}"; without it the text is JSON.
    """

    content: SerializeAsAny[ContentT]
    format_string: str | None = None

    @computed_field
    @property
    def type(self) -> str:
        """Name the class of the content as well, as `MessageFactory` knows it."""
        name = type(self).__name__
        return name if "[" in name else f"StructuredMessage[{type(self.content).__name__}]"

    def to_text(self) -> str:
        """Return the content as text."""
        if self.format_string is None:
            return self.content.model_dump_json()
        return self.format_string.format(**self.content.model_dump())

    def to_model_text(self) -> str:
        """Return the content as text."""
        return self.to_text()

    def to_model_message(self) -> UserMessage:
        """Return the content as JSON."""
        return UserMessage(content=self.content.model_dump_json(), source=self.source)


class _TextEvent(BaseAgentEvent, ABC):
    content: str

    def to_text(self) -> str:
        """Return the content."""
        return self.content


class ThoughtEvent(_TextEvent):
    """The model's reasoning."""

    type: Literal["ThoughtEvent"] = "ThoughtEvent"


class SelectorEvent(_TextEvent):
    """What the model said when it was asked who speaks next."""

    type: Literal["SelectorEvent"] = "SelectorEvent"


class ModelClientStreamingChunkEvent(_TextEvent):
    """A piece of the model's answer. `full_message_id` is the `id` of the whole message."""

    is_transient: ClassVar[bool] = True
    full_message_id: str | None = None
    type: Literal["ModelClientStreamingChunkEvent"] = "ModelClientStreamingChunkEvent"


class CodeOutputEvent(_TextEvent):
    """What a running block wrote just now. The `CodeExecutionEvent` repeats all of it.

    block    number of the block, from 0
    stream   "stdout" or "stderr"
    """

    is_transient: ClassVar[bool] = True
    retry_attempt: int = 0
    block: int
    stream: Stream
    type: Literal["CodeOutputEvent"] = "CodeOutputEvent"


class CodeGenerationEvent(_TextEvent):
    """The model wrote code, or decided to try again (then without blocks)."""

    retry_attempt: int
    code_blocks: list[CodeBlock]
    type: Literal["CodeGenerationEvent"] = "CodeGenerationEvent"


class CodeApprovalEvent(BaseAgentEvent):
    """It was decided whether code may run. `hints` say what a static look at the code found.

    `edited_blocks` run instead of the blocks that were asked about, unless it is empty.
    """

    retry_attempt: int = 0
    approved: bool
    reason: str
    hints: list[str] = Field(default_factory=list[str])
    edited_blocks: list[CodeBlock] = Field(default_factory=list[CodeBlock])
    type: Literal["CodeApprovalEvent"] = "CodeApprovalEvent"

    def to_text(self) -> str:
        """Return the decision and its reason."""
        decision = "approved" if self.approved else "not approved"
        decision += " with changes" if self.edited_blocks else ""
        return f"Code execution was {decision}. Reason: {self.reason}"


class CodeExecutionEvent(BaseAgentEvent):
    """Code ran. The output of `result` is what the model is shown."""

    retry_attempt: int
    result: SerializeAsAny[CodeResult]
    type: Literal["CodeExecutionEvent"] = "CodeExecutionEvent"

    def to_text(self) -> str:
        """Return the output."""
        return self.result.output


class ToolCallRequestEvent(BaseAgentEvent):
    """The model requested tool calls."""

    content: list[FunctionCall]
    type: Literal["ToolCallRequestEvent"] = "ToolCallRequestEvent"

    def to_text(self) -> str:
        """Return the calls."""
        return str(self.content)


class ToolCallExecutionEvent(BaseAgentEvent):
    """Tools were called."""

    content: list[FunctionExecutionResult]
    type: Literal["ToolCallExecutionEvent"] = "ToolCallExecutionEvent"

    def to_text(self) -> str:
        """Return the results."""
        return str(self.content)


class UserInputRequestedEvent(BaseAgentEvent):
    """An agent waits for the user. `request_id` identifies the request."""

    request_id: str
    content: Literal[""] = ""
    type: Literal["UserInputRequestedEvent"] = "UserInputRequestedEvent"

    def to_text(self) -> str:
        """Return the content."""
        return self.content


class SelectSpeakerEvent(BaseAgentEvent):
    """A team chose who speaks next."""

    content: list[str]
    type: Literal["SelectSpeakerEvent"] = "SelectSpeakerEvent"

    def to_text(self) -> str:
        """Return the names."""
        return str(self.content)


AgentMessage = BaseAgentEvent | BaseChatMessage


class MessageFactory:
    """Load messages by their type. Only types on its list are loaded."""

    def __init__(self) -> None:
        self._types: dict[str, type[AgentMessage]] = {cls.__name__: cls for cls in _MESSAGE_TYPES}

    def is_registered(self, message_type: type[AgentMessage]) -> bool:
        """Return True if messages of `message_type` can be loaded."""
        return self._types.get(message_type.__name__) is message_type

    def register(self, message_type: type[AgentMessage]) -> None:
        """Put `message_type` on the list. Raise `ValueError` if its name is taken."""
        if not issubclass(cast(type[object], message_type), BaseAgentEvent | BaseChatMessage):
            raise ValueError(f"{message_type.__name__} is not a message or event class.")
        if self._types.get(message_type.__name__, message_type) is not message_type:
            raise ValueError(f"A message type {message_type.__name__!r} is registered already.")
        self._types[message_type.__name__] = message_type

    def create(self, data: Mapping[str, Any]) -> AgentMessage:
        """Return the message that `dump` returned as `data`.

        Raise `ValueError` for an unknown type or wrong fields.
        """
        name = data.get("type")
        message_type = self._types.get(str(name))
        if message_type is None:
            raise ValueError(
                f"Unknown message type {name!r}. Name your own types in custom_message_types."
            )
        return message_type.load(data)


_MESSAGE_TYPES: tuple[type[AgentMessage], ...] = (
    TextMessage,
    StopMessage,
    HandoffMessage,
    ToolCallSummaryMessage,
    MultiModalMessage,
    ThoughtEvent,
    SelectorEvent,
    ModelClientStreamingChunkEvent,
    CodeOutputEvent,
    CodeGenerationEvent,
    CodeApprovalEvent,
    CodeExecutionEvent,
    ToolCallRequestEvent,
    ToolCallExecutionEvent,
    UserInputRequestedEvent,
    SelectSpeakerEvent,
)
