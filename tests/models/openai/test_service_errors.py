"""Errors of a service with OpenAI's protocol, as they reach the caller."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest

from cellblock.errors import ModelError
from tests.models.http_service import Reply, json_reply, stream_reply
from tests.models.openai.test_client import ask, ask_stream


@pytest.mark.parametrize(
    ("reply", "status", "message"),
    [
        (
            json_reply(
                {"error": {"message": "Incorrect key", "code": "x"}}, 401, x_request_id="r1"
            ),
            401,
            " answered with status 401, request ID r1: Incorrect key. Check the API key.",
        ),
        (
            json_reply({"error": {"message": "No such model."}}, 404),
            404,
            " answered with status 404: No such model. Check model= and the address of the "
            "service.",
        ),
        (
            json_reply({"error": {"message": "Rate limit"}}, 429),
            429,
            " answered with status 429: Rate limit. Wait, or raise max_retries=.",
        ),
        (
            json_reply({"error": {"message": "The maximum context length is 8 tokens"}}, 400),
            400,
            "8 tokens. Send fewer or shorter messages.",
        ),
        (
            json_reply({"error": {"message": "Quota.", "code": "insufficient_quota"}}, 429),
            429,
            "429: Quota. Check the plan and the billing of the account: waiting does not help.",
        ),
        (Reply(body=b"", status=500), 500, " answered with status 500: Internal Server Error."),
        (Reply(body=b"{gar", status=200), None, "cannot be read"),
        (Reply(body=b"<html>", content_type="text/html"), None, "cannot be read: the answer: "),
        (Reply(body=b"[1, 2]"), None, "cannot be read: the answer: "),
        (
            Reply(body=b'{"choices": []}'),
            None,
            "cannot be read: choices: List should have at least",
        ),
        (
            json_reply({"choices": [{"message": {"content": 5}}]}),
            None,
            r"choices.0.message.content",
        ),
    ],
)
def test_errors_of_the_service_are_model_errors(
    reply: Reply, status: int | None, message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        ask(reply)
    assert message in str(caught.value)
    assert "OpenAI" not in str(caught.value)
    assert caught.value.status == status
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("ask_any", [ask, ask_stream])
def test_errors_are_also_those_of_the_sdk(ask_any: Callable[[Reply], object]) -> None:
    openai = pytest.importorskip("openai", reason="openai is missing: the extra `openai` has it")
    reply = json_reply({"error": {"message": "Busy.", "code": "x"}}, 429, x_request_id="r1")
    with pytest.raises(openai.RateLimitError) as caught:
        ask_any(reply)
    assert isinstance(caught.value, ModelError)
    error: Any = cast(object, caught.value)
    assert (error.status_code, error.code, error.request_id) == (429, "x", "r1")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.status) == (ModelError, str(error), 429)


@pytest.mark.parametrize(
    "reply",
    [
        stream_reply(5),
        stream_reply({"choices": 5}),
        stream_reply(),
        stream_reply({"error": {"message": "overloaded"}}),
        Reply(body=b"data: {gar\n\n", content_type="text/event-stream"),
    ],
)
def test_a_damaged_stream_is_a_model_error(reply: Reply) -> None:
    with pytest.raises(ModelError):
        ask_stream(reply)
