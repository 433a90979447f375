"""What other servers refuse of OpenAI's protocol, and the request without it. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from ..service_errors import is_too_long_text

Feature = Literal["stream_options", "extra_content", "name", "system role", "same role in a row"]
Body = Mapping[str, Any]
Message = Mapping[str, Any]
USAGE_OPTION: Mapping[str, Any] = {"include_usage": True}
# Servers that fill a template of the model answer with status 500 to what it refuses.
_STATUSES = (400, 422, 500)
_REFUSAL = re.compile(
    r"support|permit|allow|invalid|unknown|unexpected|unrecogni[sz]ed|extra|alternat(e|ing)\b|\bmust\b",
    re.I,
)
_STREAM = re.compile(r"\bstream(ing)?\b", re.IGNORECASE)
# How errors mention a feature, in the order in which they are looked for.
_MENTIONS: tuple[tuple[Feature, re.Pattern[str]], ...] = (
    ("stream_options", re.compile("stream_options")),
    ("extra_content", re.compile("extra_content")),
    (
        "same role in a row",
        re.compile(
            r"alternat(e|ing)\b|same role|(consecutive|multiple) (user|assistant) mess", re.I
        ),
    ),
    (
        "system role",
        re.compile(
            r"system.{0,30}(role|message|prompt|instruction)|role.{0,60}\bsystem\b|alternat(e|ing)\b|"
            r"developer instruction|['\"`]system['\"`](?!\s*:)",
            re.IGNORECASE,
        ),
    ),
    ("name", re.compile(r"\.name\b|['\"`]name['\"`](?!\s*:)|: name\b")),
)


def refuses_stream(status: int | None, text: str) -> bool:
    """Return True if a server that answers with `status` and `text` does not stream."""
    return status in _STATUSES and bool(_STREAM.search(text) and _REFUSAL.search(text))


def refused_feature(status: int, text: str, body: Body) -> Feature | None:
    """Return the feature of the request `body` that a server refuses with `status` and `text`.

    None means another one, or one that the caller asked for.
    """
    if status not in _STATUSES or is_too_long_text(status, text) or not _REFUSAL.search(text):
        return None
    features = _features(body)
    return next(
        (name for name, pattern in _MENTIONS if name in features and pattern.search(text)), None
    )


def _features(body: Body) -> set[Feature]:
    messages: Sequence[Message] = body["messages"]
    roles = [message["role"] for message in messages]
    features = set[Feature]()
    if body.get("stream_options") == USAGE_OPTION:
        features.add("stream_options")
    if any("extra_content" in call for message in messages for call in _calls(message)):
        features.add("extra_content")
    if any("name" in message for message in messages):
        features.add("name")
    if "system" in roles:
        features.add("system role")
    if any(map(_can_be_merged, messages, messages[1:])):
        features.add("same role in a row")
    return features


def without(body: Body, refused: Collection[Feature]) -> Body:
    """Return `body` without the features `refused`.

    The system messages begin the user's first message, and messages of one role in a row become
    one.
    """
    messages: Sequence[Message] = body["messages"]
    if "name" in refused:
        messages = [{key: message[key] for key in message if key != "name"} for message in messages]
    if "extra_content" in refused:
        messages = [_without_extra_content(message) for message in messages]
    if "system role" in refused:
        messages = _fold_system(messages)
    if "same role in a row" in refused:
        messages = _merge(messages)
    options = {"stream_options"} if "stream_options" in refused else set[str]()
    return {**{key: body[key] for key in body if key not in options}, "messages": messages}


def _calls(message: Message) -> Sequence[Message]:
    return message.get("tool_calls", ())


def _without_extra_content(message: Message) -> Message:
    calls = [{key: call[key] for key in call if key != "extra_content"} for call in _calls(message)]
    return {**message, "tool_calls": calls} if calls else message


def _fold_system(messages: Sequence[Message]) -> list[Message]:
    system = [message["content"] for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    if not system:
        return rest
    folded = {"role": "user", "content": "\n\n".join(system)}
    first = next((n for n, message in enumerate(rest) if message["role"] == "user"), None)
    if first is None:
        return [folded, *rest]
    return [*rest[:first], _joined(folded, rest[first]), *rest[first + 1 :]]


def _merge(messages: Sequence[Message]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        if merged and _can_be_merged(merged[-1], message):
            merged[-1] = _joined(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _can_be_merged(first: Message, second: Message) -> bool:
    has_calls = "tool_calls" in first or "tool_calls" in second
    return first["role"] == second["role"] in ("user", "assistant") and not has_calls


def _joined(first: Message, second: Message) -> Message:
    """Return one message with the content of both; with the name of the second, if it has one."""
    contents = [first["content"], second["content"]]
    if all(isinstance(content, str) for content in contents):
        return {**second, "content": "\n\n".join(contents)}
    return {**second, "content": [part for content in contents for part in _parts(content)]}


def _parts(content: str | Sequence[Message]) -> Sequence[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
