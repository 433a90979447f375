"""The file of a cassette: JSON that people can read, compare and commit.

A text of several lines is {"|": [its lines]}. An image in a request is only described. What looks
like a secret is replaced by ***.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, cast

from pydantic import BaseModel, Field, ValidationError

from .client import validate_model_info
from .recorded import RecordedAnswer, RequestValues

_LINES = "|"
_SECRET_TEXT = re.compile(
    r"\b(sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|AKIA[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|xox[abprs]-[\w-]{10,}|hf_\w{20,}|(?<=Bearer )[\w.~+/=-]{12,})"
)
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_MASK = "***"


class RecordedTurn(BaseModel):
    """A request and its answer."""

    request: RequestValues
    answer: RecordedAnswer


class CassetteFile(BaseModel):
    """The content of a cassette."""

    model_info: dict[str, Any] = Field(default_factory=dict[str, Any])
    turns: list[RecordedTurn] = Field(default_factory=list[RecordedTurn])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the contents of the file `path`; nothing if it does not exist.

        Raise `ValueError` if it is damaged.
        """
        if not path.exists():
            return cls()
        if path.is_dir():
            raise ValueError(f"The cassette {path} is a folder. Pass the path of a file in it.")
        try:
            file = cls.model_validate(_joined(json.loads(path.read_text(encoding="utf-8"))))
            validate_model_info(file.model_info)
            return file
        except ValidationError as error:
            reason = f"{error.error_count()} wrong fields: {error.errors()[0]['loc']}"
        except (ValueError, RecursionError) as error:
            reason = str(error)
        raise ValueError(
            f"The cassette {path} is damaged ({reason}). Delete it and record it again."
        )

    def write(self, path: Path) -> None:
        """Replace the file `path` in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        # The request must stay whole to be compared; of the answer, None is left out.
        turns = [
            {
                "request": turn.request,
                "answer": turn.answer.model_dump(mode="json", exclude_none=True),
            }
            for turn in self.turns
        ]
        text = _pretty({"model_info": self.model_info, "turns": turns})
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)


class Rules:
    """Regular expressions and their replacements. Raise `ValueError` for an invalid expression."""

    def __init__(self, rules: Sequence[tuple[str, str]]) -> None:
        try:
            self._rules = [(re.compile(pattern), text) for pattern, text in rules]
        except re.error as error:
            raise ValueError(
                f"{error.pattern!r} in normalize= is not a regular expression: {error}."
            ) from error

    def apply(self, text: str) -> str:
        """Return `text` with everything replaced, secrets too."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return _SECRET_TEXT.sub(_MASK, text)


def masked(turn: RecordedTurn, rules: Rules) -> RecordedTurn:
    """Return `turn` as it may be written: normalized, images described, secrets masked."""
    answer = _map_texts(turn.answer.model_dump(mode="json"), lambda x: _SECRET_TEXT.sub(_MASK, x))
    return RecordedTurn(
        request=_comparable(turn.request, rules), answer=RecordedAnswer.model_validate(answer)
    )


def difference(
    recorded: RequestValues | None, request: RequestValues, *, rules: Rules, recorded_in: str
) -> str:
    """Return a unified diff from the recorded request to the new one; "" if they are the same."""
    old = [] if recorded is None else _pretty(_comparable(recorded, rules)).splitlines()
    new = _pretty(_comparable(request, rules)).splitlines()
    return "\n".join(difflib.unified_diff(old, new, recorded_in, "this request", lineterm=""))


def _comparable(request: RequestValues, rules: Rules) -> RequestValues:
    arguments = _without_secrets(request.get("extra_create_args", {}))
    values = {**request, "extra_create_args": arguments}
    values["messages"] = _with_images_described(request.get("messages", []))
    return _map_texts(values, rules.apply)


def _map_texts(node: Any, change: Callable[[str], str]) -> Any:
    match node:
        case str():
            return change(node)
        case dict():
            values = cast(dict[str, Any], node)
            return {key: _map_texts(value, change) for key, value in values.items()}
        case list():
            return [_map_texts(item, change) for item in cast(list[Any], node)]
        case _:
            return node


def _without_secrets(node: Any) -> Any:
    """Return the arguments without the texts whose name tells that they are secret."""
    if isinstance(node, list):
        return [_without_secrets(item) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    values = cast(dict[str, Any], node)
    return {
        name: _MASK
        if isinstance(value, str) and _SECRET_NAME.search(name)
        else _without_secrets(value)
        for name, value in values.items()
    }


def _with_images_described(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**message, "content": [_described(part) for part in cast(list[Any], message["content"])]}
        if isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def _described(part: Any) -> Any:
    """Return a description if `part` is an image, otherwise `part`."""
    match part:
        case {"data": str(text), **others} if not others:
            data = base64.b64decode(text)
            return {"image": f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"}
        case _:
            return part


def _pretty(values: Any) -> str:
    return json.dumps(_split(values), indent=1, ensure_ascii=False)


def _split(node: Any) -> Any:
    """Return `node` with each text of several lines as {"|": [its lines]}."""
    match node:
        case str() if "\n" in node:
            return {_LINES: node.split("\n")}
        case dict():
            values = cast(dict[str, Any], node)
            return {key: _split(value) for key, value in values.items()}
        case list():
            return [_split(item) for item in cast(list[Any], node)]
        case _:
            return node


def _joined(node: Any) -> Any:
    """Return what `_split` was given."""
    match node:
        case {"|": [*lines], **others} if not others:
            return "\n".join(map(str, lines))
        case dict():
            values = cast(dict[str, Any], node)
            return {key: _joined(value) for key, value in values.items()}
        case list():
            return [_joined(item) for item in cast(list[Any], node)]
        case _:
            return node
