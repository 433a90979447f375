"""AG2's group chats: agents with handoffs, patterns, and functions that share variables."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

from cellblock.chat import ConversableAgent
from cellblock.chat.groups.patterns import (
    AutoPattern,
    DefaultPattern,
    ManualPattern,
    Pattern,
    RandomPattern,
    RoundRobinPattern,
    a_initiate_group_chat,
    initiate_group_chat,
    run_group_chat,
)
from cellblock.chat.handoffs import (
    AgentNameTarget,
    AgentTarget,
    AskUserTarget,
    ContextExpression,
    ContextStr,
    ContextStrLLMCondition,
    ExpressionContextCondition,
    GroupManagerSelectionMessageContextStr,
    GroupManagerTarget,
    Handoffs,
    NestedChatTarget,
    OnCondition,
    OnContextCondition,
    ReplyResult,
    RevertToUserTarget,
    StayTarget,
    StringAvailableCondition,
    StringContextCondition,
    StringLLMCondition,
    TerminateTarget,
    UpdateSystemMessage,
)
from cellblock.chat.tools.context_variables import ContextVariables
from cellblock.models import CreateResult, FunctionCall, ReplayChatCompletionClient, RequestUsage
from tests.chat.scripted import scripted

Said = list[tuple[str | None, str]]


def calling(name: str, **arguments: Any) -> CreateResult:
    call = FunctionCall(id=f"call-{name}", name=name, arguments=json.dumps(arguments))
    return CreateResult(
        finish_reason="function_calls", content=[call], usage=RequestUsage(1, 1), cached=False
    )


def modelled(name: str, *answers: Any, **options: Any) -> tuple[ConversableAgent, Any]:
    """Return an agent whose model gives `answers`, and the model."""
    client = ReplayChatCompletionClient(answers)
    entry = {"model": "replay", "model_client": client}
    config = {"config_list": [entry], "cache_seed": None}
    return ConversableAgent(name, llm_config=config, human_input_mode="NEVER", **options), client


def person(**options: Any) -> ConversableAgent:
    return scripted("user", **options)


def said(result: Any) -> Said:
    return [(each.get("name"), each["content"]) for each in result.chat_history]


def book(city: Annotated[str, "Where to"], context_variables: ContextVariables) -> ReplyResult:
    """Book a trip."""
    context_variables["city"] = city
    return ReplyResult(f"booked {city}", AgentNameTarget("pay"), ContextVariables(paid=False))


def test_functions_hand_off_and_share_variables_as_in_ag2() -> None:
    desk, model = modelled("desk", calling("book", city="Rome"), "bye", functions=[book])
    pay, other = modelled(
        "pay",
        calling("transfer_to_desk_1"),
        update_agent_state_before_reply=[UpdateSystemMessage("You bill {city}.")],
    )
    pay.handoffs.add_many(
        [
            OnCondition(AgentTarget(desk), StringLLMCondition("when paid")),
            OnCondition(
                AgentTarget(desk),
                ContextStrLLMCondition(ContextStr("in {city}")),
                StringAvailableCondition("paid"),
            ),
        ]
    )
    variables = ContextVariables({"city": "none"})
    result, shared, last = initiate_group_chat(
        DefaultPattern(desk, [desk, pay], person(), context_variables=variables), "go", 15
    )
    executor = "_Group_Tool_Executor"
    assert said(result) == [
        ("user", "go"),
        ("desk", ""),
        (executor, "booked Rome"),
        ("pay", ""),
        (executor, "Transfer to desk"),
        ("desk", "bye"),
    ]
    assert shared is variables is desk.context_variables
    assert dict(shared) == {"city": "Rome", "paid": False}
    assert (last, result.summary) == (desk, "bye")
    [offered] = model.create_calls[0]["tools"]
    assert list(offered["parameters"]["properties"]) == ["city"]
    asked = other.create_calls[0]
    assert asked["messages"][0].content == "You bill Rome."
    assert [(tool["name"], tool["description"]) for tool in asked["tools"]] == [
        ("transfer_to_desk_1", "when paid")
    ]
    later = str(model.create_calls[1]["messages"])
    assert "booked Rome" in later
    assert "transfer_to" not in later, "no model sees who handed off"


def test_context_conditions_choose_before_a_reply_and_after_it() -> None:
    first, second = scripted("a", "a1", "a2"), scripted("b", "b1", "b2")
    condition = ExpressionContextCondition(ContextExpression("len(${items}) > 1 & !${open}"))
    first.handoffs.add(OnContextCondition(AgentTarget(second), condition))
    first.handoffs.set_after_work(AgentTarget(second))
    second.handoffs.add_after_works(
        [
            OnContextCondition(TerminateTarget()),
            OnContextCondition(AgentTarget(first), StringContextCondition("open")),
            OnContextCondition(AgentTarget(first), StringContextCondition("more")),
        ]
    )
    second.register_hook("update_agent_state", close)
    variables = ContextVariables({"items": [1, 2], "open": True, "more": True})
    result, *_ = initiate_group_chat(
        DefaultPattern(first, [first, second], person(), context_variables=variables), "go", 6
    )
    expected = ["go", "a1", "b1", "[Handing off to b]", "b2", "[Handing off to b]"]
    assert [text for _, text in said(result)] == expected


def close(agent: ConversableAgent, _messages: Any) -> None:
    agent.context_variables["open"] = False


EXPRESSIONS = {
    "${n} == 3 and not ${no}": True,
    "!${no} | ${missing}": True,
    "${name} == 'a & b' && ${n} >= -1": True,
    "(${n} < 2 or ${no}) and ${missing}": False,
    "1 < ${n} != 4": True,
    "len(${n}) == 0": True,
}


def test_expressions_have_only_what_is_documented() -> None:
    variables = ContextVariables({"n": 3, "no": False, "name": "a & b"})
    for text, value in EXPRESSIONS.items():
        assert ContextExpression(text).evaluate(variables) is value, text
    with pytest.raises(KeyError, match="missing"):
        ContextExpression("${missing}").evaluate(variables)
    for text in ("__import__('os')", "${n}.real", "n", "[${n}]", "${n} + 1", "len(${n}, 2)"):
        with pytest.raises(ValueError, match="is not allowed in the expression"):
            ContextExpression(text)
    with pytest.raises(SyntaxError, match="Invalid expression syntax"):
        ContextExpression("${n} ==")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(RoundRobinPattern, ["b1", "a1", "user1", "b2"]), (RandomPattern, ["b1", "a1", "b2", "a2"])],
)
async def test_patterns_of_turns(kind: type[Pattern], expected: list[str]) -> None:
    a, b = scripted("a", "a1", "a2"), scripted("b", "b1", "b2")
    user = scripted("user", "user1") if kind is RoundRobinPattern else None
    first = {"content": "go", "name": "a"} if user is None else "go"
    messages = first if isinstance(first, str) else [first]
    result, *_ = await a_initiate_group_chat(kind(b, [a, b], user), messages, 5)
    assert [text for _, text in said(result)] == ["go", *expected]


def test_a_model_or_a_person_chooses_among_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [scripted("a", "a1", "a2"), scripted("b", "b1"), scripted("c", "c1")]
    manager, model = modelled("manager", "b", "c")
    message = GroupManagerSelectionMessageContextStr("{what}: who of {agentlist}?")
    pattern = AutoPattern(
        agents[0],
        agents,
        person(),
        {"llm_config": manager.llm_config},
        ContextVariables(what="Next"),
        message,
    )
    result, *_ = initiate_group_chat(pattern, "go", 4)
    assert [text for _, text in said(result)] == ["go", "a1", "b1", "c1"]
    assert "Next: who of ['a', 'b', 'c', 'user']?" in str(model.create_calls[0]["messages"])
    monkeypatch.setattr("builtins.input", lambda _prompt="": "2")
    again = [scripted("a", "a1"), scripted("b", "b1")]
    result, *_ = initiate_group_chat(ManualPattern(again[0], again, person()), "go", 3)
    assert [text for _, text in said(result)] == ["go", "a1", "b1"]


def test_a_nested_chat_answers_and_hands_back_also_a_second_time() -> None:
    for _ in range(2):
        inner = scripted("inner", "inner says")
        outer, _model = modelled("c", calling("transfer_to_wrapped_nested_c_1_1"), "done")
        queue = [{"recipient": inner, "message": "in", "max_turns": 1}]
        target = NestedChatTarget({"chat_queue": queue})
        outer.handoffs.add_llm_condition(OnCondition(target, StringLLMCondition("nest")))
        response = run_group_chat(DefaultPattern(outer, [outer], person()), "go", 8)
        assert [message["content"] for message in response.messages] == [
            "go",
            "",
            "Transfer to wrapped_nested_c_1",
            "inner says",
            "done",
        ]
        assert (response.summary, response.last_speaker) == ("done", "c")
        assert response.context_variables == {}


def test_a_chat_goes_on_and_the_user_speaks_again() -> None:
    a = scripted("a", "a1", "a2")
    user = scripted("user", "more", None)
    a.handoffs.set_after_work(RevertToUserTarget())
    earlier = [{"content": "go", "name": "user"}, {"content": "a0", "name": "a"}]
    result, *_ = initiate_group_chat(DefaultPattern(a, [a], user), earlier, 9)
    assert [text for _, text in said(result)] == ["go", "a0", "a1", "more", "a2"]


def test_what_cannot_work_is_refused_by_name() -> None:
    a, b, user = scripted("a", "a1"), scripted("b"), person()
    a.handoffs.set_after_work(AgentTarget(b))
    for pattern, messages, words in (
        (DefaultPattern(a, [a], user), "go", "'a' hands off to b"),
        (AutoPattern(b, [b], user), "go", "doesn't have an LLM Config"),
        (DefaultPattern(b, [b], user, {"groupchat": 1}), "go", "'groupchat' cannot be"),
        (DefaultPattern(b, [b], user), [{"content": "go", "name": "x"}], "Invalid group agent"),
        (DefaultPattern(b, [b], user), [], "needs a first message"),
    ):
        with pytest.raises(ValueError, match=words):
            initiate_group_chat(pattern, messages)
    wrong: Any = AskUserTarget()
    with pytest.raises(TypeError, match="Expected an OnContextCondition"):
        Handoffs().add(wrong)
    with pytest.raises(TypeError, match="Functions must be a callable"):
        modelled("x", functions=["book"])
    assert StayTarget().display_name() == "Stay"
    assert GroupManagerTarget().display_name() == "the group manager"
