"""Lists of model configurations: files, environment variables, filters."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import (
    config_list_from_dotenv,
    config_list_from_json,
    config_list_openai_aoai,
    filter_config,
)

ENTRIES: list[dict[str, Any]] = [
    {"model": "gpt-4", "api_key": "a", "tags": ["x", "y"]},
    {"model": "gpt-3.5-turbo", "api_key": "b", "api_type": "azure"},
    {"api_key": "c"},
]
VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_API_BASE",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_API_BASE",
    "OTHER_KEY",
)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_may_have_the_encodings_of_windows(encoding: str) -> None:
    Path("list.json").write_text(json.dumps(ENTRIES), encoding=encoding)
    assert config_list_from_json("list.json") == ENTRIES
    Path("key_openai.txt").write_text("secret\n", encoding=encoding)
    assert config_list_openai_aoai() == [{"api_key": "secret"}]
    Path(".env").write_text("OTHER_KEY=other\n", encoding=encoding)
    found = config_list_from_dotenv(model_api_key_map={"m": "OTHER_KEY"})
    assert {"api_key": "other", "model": "m"} in found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, without keys in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that what the functions set is undone
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize(
    ("filter_dict", "kept", "kept_by_exclusion"),
    [
        ({"model": "gpt-4"}, [0], [1, 2]),
        ({"model": "gpt-4-32k"}, [], [0, 1, 2]),
        ({"model": {"gpt-4", "gpt-3.5-turbo"}}, [0, 1], [2]),
        ({"tags": []}, [], [0, 1, 2]),
    ],
)
def test_a_filter_keeps_entries_with_the_values(
    filter_dict: dict[str, Any] | None, kept: list[int], kept_by_exclusion: list[int]
) -> None:
    assert filter_config(ENTRIES, filter_dict) == [ENTRIES[number] for number in kept]
    excluded = filter_config(ENTRIES, filter_dict, exclude=True)
    assert excluded == [ENTRIES[number] for number in kept_by_exclusion]


def test_json_is_read_from_a_variable_before_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "LIST").write_text("[]")
    monkeypatch.setenv("LIST", json.dumps(ENTRIES))
    assert config_list_from_json("LIST") == ENTRIES
    (folder / "elsewhere.json").write_text(json.dumps(ENTRIES[:1]))
    monkeypatch.setenv("LIST", "elsewhere.json")
    assert config_list_from_json("LIST") == ENTRIES[:1]


def test_json_in_a_variable_can_be_longer_than_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"model": "gpt-4", "api_key": "k" * 300}] * 20
    monkeypatch.setenv("LIST", json.dumps(entries))
    assert config_list_from_json("LIST") == entries


def test_missing_and_damaged_json_is_named(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="neither an environment variable LIST nor a file"):
        config_list_from_json("LIST")
    (folder / "LIST").write_text("[{")
    with pytest.raises(ValueError, match="LIST is not JSON"):
        config_list_from_json("LIST")
    (folder / "LIST").write_text('["sk-secret"]')
    with pytest.raises(ValueError, match="not a list of model configurations") as error:
        config_list_from_json("LIST")
    assert "sk-secret" not in str(error.value)


def test_keys_in_files_come_before_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "key_openai.txt").write_text("from-file\n")
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    assert config_list_openai_aoai(key_file_path=None) == [{"api_key": "from-environment"}]
    assert config_list_openai_aoai() == [{"api_key": "from-file"}]


def test_a_dotenv_file_in_a_folder_above_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".env").write_text("# keys\nexport OTHER_KEY=\"o t\"  # mine\nOPENAI_API_KEY='k'\n")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    settings = {"api_key_env_var": "OTHER_KEY", "base_url": "u", "api_type": "azure"}
    assert config_list_from_dotenv(model_api_key_map={"m1": "OTHER_KEY", "m2": settings}) == [
        {"api_key": "o t", "model": "m1"},
        {"api_key": "o t", "base_url": "u", "api_type": "azure", "model": "m2"},
        {"api_key": "k", "model": "gpt-4"},
        {"api_key": "k", "model": "gpt-3.5-turbo"},
    ]
    only = config_list_from_dotenv(filter_dict={"model": ["gpt-4"]})
    assert only == [{"api_key": "k", "model": "gpt-4"}]


def test_models_without_a_key_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert config_list_from_dotenv("nowhere.env", {"m": "OTHER_KEY", "n": 3}) == []
    assert "The specified .env file nowhere.env does not exist." in caplog.messages
    assert any("API key not found or empty for model m." in text for text in caplog.messages)
    assert any("Unsupported type <class 'int'> for model n" in text for text in caplog.messages)
    assert "No configurations loaded." in caplog.messages
