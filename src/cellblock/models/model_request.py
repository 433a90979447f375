"""ModelRequest: the arguments of a request, and whether a model can do it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

from pydantic import BaseModel

from ..cancellation import Token
from .client import JsonOutput, ModelInfo, ToolChoice, raise_if_cancelled
from .messages import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from .tool_schema import ToolLike, name_of

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MESSAGES = (SystemMessage, UserMessage, AssistantMessage, FunctionExecutionResultMessage)


@dataclass(frozen=True)
class ModelRequest:
    """The arguments of `ChatCompletionClient.create`."""

    messages: Sequence[LLMMessage]
    _: KW_ONLY
    tools: Sequence[ToolLike] = ()
    tool_choice: ToolChoice = "auto"
    json_output: JsonOutput = None
    extra_create_args: Mapping[str, Any] | None = None
    cancellation_token: Token | None = None

    @property
    def output_type(self) -> type[BaseModel] | None:
        """The class whose JSON is requested, or None."""
        return self.json_output if isinstance(self.json_output, type) else None

    def raise_if_cancelled(self) -> None:
        """Raise `asyncio.CancelledError` if the token is cancelled."""
        raise_if_cancelled(self.cancellation_token)

    def check(self, info: ModelInfo) -> None:
        """Raise `ValueError` if a model with the abilities `info` cannot do this."""
        check_messages(self.messages)
        self._check_json(info)
        if not info["vision"] and any(map(_has_image, self.messages)):
            raise ValueError("Model does not support vision and image was provided")
        if self.tools and not info["function_calling"]:
            raise ValueError("Model does not support function calling")
        names = [name_of(tool) for tool in self.tools]
        for name in names:
            if not _TOOL_NAME.fullmatch(name):
                raise ValueError(
                    f"Invalid name: {name}. Only letters, numbers, '_' and '-' are allowed, "
                    "and at most 64 characters."
                )
        if isinstance(self.tool_choice, str):
            if self.tool_choice not in ("auto", "required", "none"):
                raise ValueError(
                    "tool_choice must be a Tool object, 'auto', 'required', or 'none', "
                    f"got {self.tool_choice!r}"
                )
        elif not names:
            raise ValueError("tool_choice specified but no tools provided")
        elif name_of(self.tool_choice) not in names:
            raise ValueError(
                f"tool_choice references '{name_of(self.tool_choice)}' "
                "but it's not in the provided tools"
            )

    def _check_json(self, info: ModelInfo) -> None:
        wanted = cast(object, self.json_output)
        if wanted is None or isinstance(wanted, bool):
            if wanted and not info["json_output"]:
                raise ValueError("Model does not support JSON output.")
        elif not (isinstance(wanted, type) and issubclass(wanted, BaseModel)):
            raise ValueError(
                f"json_output must be a boolean or a Pydantic model class, got {wanted!r:.100}"
            )
        elif not (info.get("structured_output") or info["json_output"]):
            raise ValueError("Model does not support structured output.")


def check_messages(messages: object) -> None:
    """Raise `ValueError` if `messages` is not a sequence of messages to a model."""
    example = "UserMessage(content=..., source='user')"
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        kind = type(messages).__name__
        raise ValueError(f"messages must be a list such as [{example}], not a {kind}.")
    for index, message in enumerate(cast(Sequence[object], messages)):
        if not isinstance(message, _MESSAGES):
            kind = type(message).__name__
            raise ValueError(f"messages[{index}] is a {kind}. Pass a message such as {example}.")


def _has_image(message: LLMMessage) -> bool:
    return isinstance(message, UserMessage) and any(
        not isinstance(part, str) for part in message.content
    )
