"""A model selects the speaker of a group chat."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from cellblock.chat import AgentNameConflict, GroupChat, gather_usage_summary
from cellblock.chat.groups.group_chat_settings import NO_NAME, SEVERAL_NAMES
from tests.chat.console import console
from tests.chat.group import client_of, manager_of, replay, said, speaker, speakers

PROMPT = (
    "Read the above conversation. Then select the next role from ['a', 'b', 'c'] to play. "
    "Only return the role."
)


def talk(*answers: str, **options: Any) -> tuple[list[str], Any]:
    """Return what was said in a group chat whose model answers so, and the model."""
    agents = speakers(description="talks")
    config = replay(*answers)
    settings = {"speaker_selection_method": "auto", "max_round": 2, **options}
    manager = manager_of(agents, {"llm_config": config}, **settings)
    agents[0].initiate_chat(manager, message="go")
    return said(manager), client_of(config)


def asked(client: Any, call: int = 0) -> list[str]:
    return [message.content for message in client.create_calls[call]["messages"]]


def test_the_model_of_the_manager_gets_roles_conversation_and_question() -> None:
    spoken, client = talk("c", "b", max_round=3)
    assert spoken == ["go", "c1", "b1"]
    system, *conversation, question = asked(client, 1)
    assert "a: talks\nb: talks\nc: talks" in system
    assert "['a', 'b', 'c']" in system
    assert (conversation, question) == (["go", "c1"], PROMPT)


@pytest.mark.parametrize(
    ("answers", "said_next"),
    [
        (["**c**: it is the turn of c"], "c1"),
        (["nobody", "c"], "c1"),
        (["b or c", "c"], "c1"),
        (["C", "cb", "c"], "c1"),
        (["nobody", "b or c", ""], "b1"),  # the next in the list
    ],
)
def test_it_is_asked_again_until_it_names_one_agent(answers: list[str], said_next: str) -> None:
    spoken, client = talk(*answers)
    assert spoken == ["go", said_next]
    assert len(client.create_calls) == len(answers)


def test_it_is_told_what_was_wrong_with_its_answer() -> None:
    _, client = talk("nobody", "b or c", "c")
    told = asked(client, 2)[3:]
    assert told == ["nobody", NO_NAME.format(agentlist="['a', 'b', 'c']"), "b or c", SEVERAL_NAMES]


def test_no_retry_leaves_one_attempt() -> None:
    spoken, client = talk("nobody", max_retries_for_selecting_speaker=0)
    assert (spoken, len(client.create_calls)) == (["go", "b1"], 1)


def test_verbose_prints_the_conversation_with_the_model() -> None:
    with console() as stream:
        talk("nobody", "b or c", "c", select_speaker_auto_verbose=True)
    assert f"checking_agent (to speaker_selection_agent):\n\n{PROMPT}\n" in stream.text
    assert "speaker_selection_agent (to checking_agent):\n\nb or c\n" in stream.text
    start = ">>>>>>>> Select speaker attempt "
    assert f"{start}#1 failed as it did not include any agent names.\n" in stream.text
    assert f"{start}2 of 3 failed as it included multiple agent names.\n" in stream.text
    assert f"{start}3 of 3 successfully selected: c\n" in stream.text
    with console() as stream:
        talk("c")
    assert "checking_agent" not in stream.text


def test_the_templates_and_the_role_can_be_changed() -> None:
    _, client = talk(
        "x",
        "b c",
        "c",
        select_speaker_message_template="Roles: {roles}",
        select_speaker_prompt_template="Who of {agentlist}?",
        select_speaker_auto_none_template="None of {agentlist}.",
        select_speaker_auto_multiple_template="Several of {agentlist}.",
        role_for_select_speaker_messages="user",
    )
    names = "['a', 'b', 'c']"
    assert asked(client, 2) == [
        "Roles: a: talks\nb: talks\nc: talks", "go", f"Who of {names}?", "x", f"None of {names}.",
        "b c", f"Several of {names}.",
    ]  # fmt: skip
    assert client.create_calls[2]["messages"][2].type == "UserMessage"


def test_without_a_question_the_last_message_is_sent_once() -> None:
    _, client = talk("c", select_speaker_prompt_template=None)
    assert asked(client)[1:] == ["go"]


def test_a_call_without_its_result_is_not_sent_to_the_model() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "double", "arguments": "{}"}}
    a: Any = speaker("a")
    options = {"function_map": {"double": lambda: 2}}
    agents = [a, speaker("b", "b1", **options), speaker("c", "c1", **options)]
    config = replay("c")
    manager = manager_of(agents, {"llm_config": config}, max_round=2)
    manager.groupchat.speaker_selection_method = "auto"
    a.initiate_chat(manager, message={"content": "", "tool_calls": [call]})
    messages = client_of(config).create_calls[0]["messages"]
    assert "double" not in str(messages[1:])
    assert manager.last_speaker is agents[2]


def test_the_selection_can_have_a_model_of_its_own() -> None:
    own = replay("c")
    spoken, client = talk(select_speaker_auto_llm_config=own)
    assert spoken == ["go", "c1"]
    assert len(client_of(own).create_calls) == 1
    assert client.create_calls == []


class Named:
    """A model client of the user."""

    def __init__(self, config: Any, **_: Any) -> None:
        self.config = config

    def create(self, params: Any) -> Any:
        from types import SimpleNamespace

        choice = SimpleNamespace(message=SimpleNamespace(content=self.config["says"]))
        return SimpleNamespace(choices=[choice], model="named")

    def message_retrieval(self, response: Any) -> list[str]:
        return [choice.message.content for choice in response.choices]

    def cost(self, response: Any) -> float:
        return 0.5

    @staticmethod
    def get_usage(response: Any) -> dict[str, Any]:
        return {
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "total_tokens": 2,
            "cost": 0.5,
            "model": "named",
        }


NAMED = {
    "config_list": [{"model": "m", "model_client_cls": "Named", "says": "c"}],
    "cache_seed": None,
}


@pytest.mark.parametrize("classes", [Named, [Named]])
def test_a_model_client_of_the_user_selects(classes: Any) -> None:
    spoken, _ = talk(
        select_speaker_auto_llm_config=NAMED, select_speaker_auto_model_client_cls=classes
    )
    assert spoken == ["go", "c1"]


def test_a_client_registered_with_the_manager_selects_and_its_cost_counts() -> None:
    agents = speakers()
    manager = manager_of(agents, {"llm_config": NAMED}, max_round=2)
    manager.groupchat.speaker_selection_method = "auto"
    manager.register_model_client(Named)
    agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go", "c1"]
    usage = gather_usage_summary([manager])["usage_including_cached_inference"]
    assert usage["total_cost"] == 0.5


def test_without_a_model_the_next_agent_speaks_and_a_warning_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agents = speakers()
    manager = manager_of(agents, max_round=2, speaker_selection_method="auto")
    with caplog.at_level(logging.WARNING):
        agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go", "b1"]
    assert "no model can choose. Set llm_config of the GroupChatManager" in caplog.text


def test_a_name_that_two_agents_have_is_an_error() -> None:
    twins: list[Any] = [speaker("twin", "1"), speaker("twin", "2"), speaker("c", "3")]
    config = {"llm_config": replay("twin")}
    manager = manager_of(twins, config, speaker_selection_method="auto")
    with pytest.raises(AgentNameConflict, match="2 agents of the group chat have this name"):
        twins[2].initiate_chat(manager, message="go")
    assert said(manager) == ["go"]


def test_a_model_that_fails_leaves_the_transcript() -> None:
    agents = speakers()
    manager = manager_of(agents, {"llm_config": replay()}, speaker_selection_method="auto")
    with pytest.raises(Exception, match=r"(?i)no more"):
        agents[0].initiate_chat(manager, message="go")
    assert said(manager) == ["go"]


def test_an_asynchronous_chat_asks_the_model_too() -> None:
    agents = speakers()
    manager = manager_of(
        agents, {"llm_config": replay("nobody", "c")}, max_round=2, speaker_selection_method="auto"
    )
    asyncio.run(agents[0].a_initiate_chat(manager, message="go"))
    assert said(manager) == ["go", "c1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b", {"b": 1}),
        ("B", {}),
        ("a and b, b.", {"a": 1, "b": 2}),
        ("[b]", {"b": 1}),
        ("ab", {}),
        ("story writer", {"story_writer": 1}),
        (r"story\_writer and story_writer", {"story_writer": 2}),
        ("Story_writer", {}),
        ("x+y", {"x+y": 1}),
        (None, {}),
        ([{"type": "text", "text": "a"}], {"a": 1}),
    ],
)
def test_names_count_as_whole_words(text: Any, expected: dict[str, int]) -> None:
    agents: list[Any] = [*speakers("ab"), speaker("story_writer"), speaker("x+y")]
    assert GroupChat(agents, [])._mentioned_agents(text, None) == expected


def test_messages_can_be_transformed_for_the_model() -> None:
    def last_only(messages: list[Any]) -> list[Any]:
        return messages[-1:]

    class Shorter:
        def add_to_agent(self, agent: Any) -> None:
            agent.register_hook("process_all_messages_before_reply", last_only)

    _, client = talk("c", select_speaker_transform_messages=Shorter())
    assert asked(client)[1:] == [PROMPT]
    with pytest.raises(ValueError, match="select_speaker_transform_messages must be None"):
        GroupChat([], [], select_speaker_transform_messages="x")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("select_speaker_message_template", ""),
        ("select_speaker_auto_multiple_template", None),
        ("select_speaker_auto_none_template", ""),
        ("role_for_select_speaker_messages", ""),
        ("select_speaker_auto_verbose", "yes"),
        ("max_retries_for_selecting_speaker", -1),
        ("max_retries_for_selecting_speaker", "1"),
    ],
)
def test_settings_of_another_kind_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        GroupChat(speakers(), [], **{option: value})
