"""LLMConfig: AG2's way to say which models an agent asks."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import AssistantAgent, ConversableAgent, LLMConfig, UserProxyAgent
from cellblock.models import ReplayChatCompletionClient

FOUR: dict[str, Any] = {"api_type": "openai", "model": "gpt-4", "api_key": "sk-four", "tags": ["x"]}
MINI: dict[str, Any] = {"api_type": "azure", "model": "mini", "api_key": "sk-mini"}


@pytest.mark.parametrize(
    "config",
    [
        LLMConfig({"model": "m"}, temperature=0, top_p=None),
        LLMConfig(config_list=[{"model": "m"}], temperature=0),
        LLMConfig(config_list={"model": "m"}, temperature=0, check_every_ms=5),
        LLMConfig(api_type="openai", model="m", temperature=0),
        LLMConfig(model="m", temperature=0, routing_method="fixed_order"),
        LLMConfig.ensure_config({"config_list": [{"model": "m"}], "temperature": 0}),
        LLMConfig.ensure_config(LLMConfig({"model": "m"}, temperature=0)),
    ],
)
def test_each_way_to_write_a_config_is_the_same(config: LLMConfig) -> None:
    assert config == {"config_list": [{"api_type": "openai", "model": "m"}], "temperature": 0}
    assert config.model_dump() == json.loads(config.model_dump_json()) == config


def test_one_or_several_models_make_a_config() -> None:
    assert LLMConfig.ensure_config(FOUR) == LLMConfig(FOUR)
    assert LLMConfig.ensure_config([FOUR, MINI]) == LLMConfig(FOUR, MINI)


@pytest.mark.parametrize("source", ["variable", "file"])
def test_models_are_read_from_json(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps([FOUR, MINI])
    if source == "variable":
        monkeypatch.setenv("MODELS", text)
        config = LLMConfig.from_json(env="MODELS", temperature=0)
    else:
        (tmp_path / "models.json").write_text(text)
        config = LLMConfig.from_json(path=tmp_path / "models.json", temperature=0)
    assert config == LLMConfig(FOUR, MINI, temperature=0)
    assert config.where(model="mini") == LLMConfig(MINI, temperature=0)
    assert config.where(tags=["x"], exclude=True) == LLMConfig(MINI, temperature=0)
    with pytest.raises(ValueError, match="No config found that satisfies"):
        config.where(model="other")


def test_what_makes_no_config_is_refused() -> None:
    wrong: list[dict[str, Any]] = [{}, {"config_list": []}, {"temperature": 1}]
    for options in wrong:
        with pytest.raises(ValueError, match="LLMConfig has no model"):
            LLMConfig(**options)
    with pytest.raises(ValueError, match="config_list must be a list of dicts"):
        LLMConfig(config_list=["gpt-4"])
    with pytest.raises(ValueError, match="Only routing_method='fixed_order'"):
        LLMConfig(FOUR, routing_method="round_robin")
    with pytest.raises(ValueError, match="either env or path"):
        LLMConfig.from_json()


def test_keys_of_a_config_are_attributes() -> None:
    config = LLMConfig(FOUR, temperature=0)
    config.temperature = 1
    assert (config.temperature, config.config_list[0]["model"]) == (1, "gpt-4")
    assert (config.get("seed"), config["temperature"]) == (None, 1)
    assert not hasattr(config, "seed")


@pytest.mark.parametrize("copied", [LLMConfig.copy, LLMConfig.deepcopy, copy.copy, copy.deepcopy])
def test_a_copy_is_a_config(copied: Any) -> None:
    other = copied(LLMConfig(FOUR, temperature=0))
    assert (type(other), other) == (LLMConfig, LLMConfig(FOUR, temperature=0))


def test_keys_are_not_shown() -> None:
    shown = str(LLMConfig(FOUR, MINI, temperature=0))
    assert "sk-" not in shown
    assert "'gpt-4'" in shown


def test_agents_ask_the_models_of_a_config() -> None:
    config = LLMConfig({"model_client": ReplayChatCompletionClient(["hello"])})
    agent = ConversableAgent("a", llm_config=config)
    assert agent.generate_reply([{"role": "user", "content": "hi"}]) == "hello"


def test_agents_made_in_a_with_block_have_its_config() -> None:
    with LLMConfig(FOUR) as outer:
        first = AssistantAgent("first")
        with LLMConfig(MINI | {"base_url": "http://x", "api_version": "v"}):
            second = ConversableAgent("second")
        third = ConversableAgent("third")
        user = UserProxyAgent("user", code_execution_config=False)
        own = ConversableAgent("own", llm_config=False)
    assert first.llm_config == third.llm_config == outer
    assert second.llm_config is not False
    assert second.llm_config["config_list"][0]["model"] == "mini"
    assert user.llm_config is own.llm_config is False
    assert ConversableAgent("later").llm_config is False
    assert LLMConfig.get_current_llm_config() is None
