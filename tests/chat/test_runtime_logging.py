"""`runtime_logging`: what models were asked and answered, in a database or file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import ConversableAgent, runtime_logging
from cellblock.errors import ModelError
from cellblock.models import ReplayChatCompletionClient
from tests.chat.model_service import completion, entry, served
from tests.models.http_service import json_reply

HELLO = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def stopped() -> Generator[None]:
    """Stop logging after each test."""
    yield
    runtime_logging.stop()


def agent(*answers: str) -> ConversableAgent:
    client = ReplayChatCompletionClient(answers)
    return ConversableAgent("helper", llm_config={"config_list": [{"model_client": client}]})


def rows(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute("SELECT * FROM chat_completions")]
    connection.close()
    return found


def test_requests_of_a_session_are_in_the_database(tmp_path: Path) -> None:
    one = agent("answer", "later", "unseen")
    session = runtime_logging.start(config={"dbname": str(tmp_path / "logs.db")})
    assert runtime_logging.logging_enabled()
    assert runtime_logging.get_connection() is not None
    one.generate_reply(HELLO)
    asyncio.run(one.a_generate_reply(HELLO))
    runtime_logging.stop()
    one.generate_reply(HELLO)
    assert (runtime_logging.logging_enabled(), runtime_logging.get_connection()) == (False, None)
    first, second = rows(tmp_path / "logs.db")
    assert (first["session_id"], first["source_name"]) == (session, "helper")
    assert json.loads(first["request"])["messages"][-1]["content"] == "hi"
    assert "answer" in first["response"]
    assert (first["is_cached"], first["cost"]) == (0, 0)
    assert first["start_time"] <= first["end_time"]
    assert "later" in second["response"]


def test_failed_requests_are_logged_and_keys_are_not(tmp_path: Path) -> None:
    runtime_logging.start(logger_type="file", config={"filename": str(tmp_path / "log")})
    with served(completion("fine"), json_reply({"error": {"message": "no"}}, 400)) as service:
        config = {"config_list": [entry(service)], "cache_seed": None}
        one = ConversableAgent("helper", llm_config=config)
        one.generate_reply(HELLO)
        with pytest.raises(ModelError):
            one.generate_reply(HELLO)
    text = (tmp_path / "log").read_text()
    fine, failed = [json.loads(line) for line in text.splitlines()]
    assert "fine" in fine["response"]
    assert "config 0 failed" in failed["response"]
    assert "sk-secret" not in text


def test_another_type_of_log_is_refused() -> None:
    wrong: Any = "paper"
    with pytest.raises(ValueError, match="must be 'sqlite' or 'file', not 'paper'"):
        runtime_logging.start(logger_type=wrong)
