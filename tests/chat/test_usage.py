"""Usage and cost of models, summed and printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.chat import ConversableAgent, OpenAIWrapper, gather_usage_summary
from cellblock.models import ReplayChatCompletionClient
from tests.chat.console import console
from tests.chat.model_service import HELLO, completion, entry, served

RULE = "-" * 100 + "\n"
ONE = "* Model 'gpt-4o': cost: 0.0065, prompt_tokens: 1000, completion_tokens: 100, "
TWO = "* Model 'gpt-4o': cost: 0.013, prompt_tokens: 2000, completion_tokens: 200, "


def printed(wrapper: OpenAIWrapper, mode: str | list[str] | None = None) -> str:
    with console() as screen:
        wrapper.print_usage_summary(mode)
    return screen.text


def test_usage_is_summed_and_printed_without_and_with_cached_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with served(completion()) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)])
        assert printed(wrapper) == 'No usage summary. Please call "create" first.\n'
        wrapper.create(messages=HELLO)
        actual = (
            f"Usage summary excluding cached usage: \nTotal cost: 0.0065\n{ONE}total_tokens: 1100\n"
        )
        same = (
            "All completions are non-cached: the total cost with cached completions is the same "
            "as actual cost.\n"
        )
        assert printed(wrapper) == f"{RULE}{actual}\n{same}{RULE}"
        wrapper.create(messages=HELLO)
        total = (
            f"Usage summary including cached usage: \nTotal cost: 0.013\n{TWO}total_tokens: 2200\n"
        )
        assert printed(wrapper) == f"{RULE}{actual}\n{total}{RULE}"
        assert printed(wrapper, "actual") == f"{RULE}{actual}{RULE}"
        assert printed(wrapper, ["total"]) == f"{RULE}{total}{RULE}"
        wrapper.clear_usage_summary()
        wrapper.create(messages=HELLO)
    none = "No actual cost incurred (all completions are using cache).\n"
    assert printed(wrapper, "actual") == f"{RULE}{none}{RULE}"


def test_another_mode_is_refused() -> None:
    wrapper = OpenAIWrapper(config_list=[{"model_client": ReplayChatCompletionClient(["one"])}])
    wrapper.create(messages=HELLO)
    with pytest.raises(ValueError, match='Invalid mode: sum, choose from "actual", "total"'):
        wrapper.print_usage_summary("sum")


def test_the_usage_of_several_agents_is_gathered() -> None:
    def agent(name: str, model: str) -> ConversableAgent:
        client = ReplayChatCompletionClient(["one", "two"])
        return ConversableAgent(
            name, llm_config={"config_list": [{"model": model, "model_client": client}]}
        )

    first, second, third = agent("a", "m"), agent("b", "m"), agent("c", "n")
    silent = ConversableAgent("d", llm_config=False)
    for each in (first, second, third):
        each.generate_oai_reply(messages=HELLO)
    usage = gather_usage_summary([first, second, third, silent])
    one = first.get_total_usage()
    assert one is not None
    total = usage["usage_including_cached_inference"]
    assert total["m"]["total_tokens"] == 2 * one["m"]["total_tokens"] > 0
    assert total["n"]["completion_tokens"] == 1
    assert total["total_cost"] == 0
    # A replay is the answer of a recording.
    assert usage["usage_excluding_cached_inference"] == {"total_cost": 0}
    assert gather_usage_summary([silent]) == {
        "usage_including_cached_inference": {"total_cost": 0},
        "usage_excluding_cached_inference": {"total_cost": 0},
    }


def test_an_agent_prints_its_usage_under_its_name() -> None:
    with console() as screen:
        ConversableAgent("ann", llm_config=False).print_usage_summary()
    assert screen.text == "No cost incurred from agent 'ann'.\n"
    client = ReplayChatCompletionClient(["one"])
    agent = ConversableAgent("bob", llm_config={"config_list": [{"model_client": client}]})
    agent.generate_oai_reply(messages=HELLO)
    with console() as screen:
        agent.print_usage_summary("total")
    assert screen.text.startswith(f"Agent 'bob':\n{RULE}Usage summary including cached usage: \n")
