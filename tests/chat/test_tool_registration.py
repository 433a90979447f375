"""Which functions an agent offers to its model, and which it executes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from cellblock.chat import AssistantAgent, ConversableAgent, UserProxyAgent, register_function
from cellblock.models import ReplayChatCompletionClient
from tests.chat.own_client import OwnClient, own_model


def add(a: Annotated[int, "First"], b: int = 2) -> int:
    return a + b


def fail() -> None:
    raise ValueError("failed")


@pytest.fixture(autouse=True)
def forget_names() -> Iterator[None]:
    """Forget the name under which a test has registered `add`: it stays with the function."""
    yield
    for attribute in ("_name", "_description"):
        vars(add).pop(attribute, None)


def with_model() -> ConversableAgent:
    client = ReplayChatCompletionClient(["Hello."])
    return AssistantAgent("assistant", llm_config={"config_list": [{"model_client": client}]})


def executor() -> ConversableAgent:
    return UserProxyAgent("user", human_input_mode="NEVER", code_execution_config=False)


def offered(agent: ConversableAgent, key: str = "tools") -> list[dict[str, Any]]:
    assert agent.llm_config
    tools = agent.llm_config.get(key, [])
    return [tool["function"] if key == "tools" else tool for tool in tools]


def names(agent: ConversableAgent, key: str = "tools") -> list[str]:
    return [each["name"] for each in offered(agent, key)]


def test_decorators_pass_on_name_and_description() -> None:
    caller, user = with_model(), executor()

    @user.register_for_execution()
    @caller.register_for_llm(name="plus", description="Add numbers")
    def sum_of(a: int, b: int) -> int:
        return a + b

    other = with_model()
    other.register_for_llm()(sum_of)
    assert (names(caller), names(other), list(user.function_map)) == (["plus"], ["plus"], ["plus"])
    assert offered(other)[0]["description"] == "Add numbers"
    assert sum_of(1, 2) == 3


def test_a_method_can_be_registered() -> None:
    class Shop:
        def price(self, item: str) -> str:
            return f"{item}: 3"

    caller, user = with_model(), executor()
    register_function(Shop().price, caller=caller, executor=user, description="d")
    assert names(caller) == ["price"]
    assert user.function_map["price"](item="tea") == "tea: 3"


def test_a_name_that_is_refused_is_not_remembered() -> None:
    def f(a: int) -> int:
        return a

    caller = with_model()
    with pytest.raises(ValueError, match="Invalid name: a b"):
        caller.register_for_llm(name="a b", description="d")(f)
    caller.register_for_llm(description="d")(f)
    assert names(caller) == ["f"]


def test_a_function_without_description_is_refused() -> None:
    def f(a: int) -> int:
        return a

    with pytest.raises(ValueError, match="Function description is required, none found"):
        with_model().register_for_llm()(f)


def test_the_old_style_of_functions_is_offered_under_functions() -> None:
    caller = with_model()
    caller.register_for_llm(name="old", description="d", api_style="function")(add)
    assert names(caller, "functions") == ["old"]
    assert names(caller) == []
    with pytest.raises(ValueError, match="Unsupported API style: x"):
        caller.register_for_llm(name="old", description="d", api_style="x")(add)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the mistake


def test_a_second_function_of_a_name_replaces_the_first_with_a_warning() -> None:
    caller, user = with_model(), executor()
    caller.register_for_llm(name="add", description="One")(add)
    user.register_for_execution(name="add")(add)
    with pytest.warns(UserWarning, match="Function 'add' is being overridden"):
        caller.register_for_llm(name="add", description="Two")(add)
    with pytest.warns(UserWarning, match="Function 'add' is being overridden"):
        user.register_function({"add": fail})
    assert [each["description"] for each in offered(caller)] == ["Two"]
    assert user.function_map["add"] is fail


def test_signatures_can_be_removed_by_name_and_by_signature() -> None:
    caller = with_model()
    for name in ("one", "two", "three"):
        caller.register_for_llm(name=name, description="d")(add)
    assert caller.llm_config
    caller.update_tool_signature("one", is_remove=True)
    caller.update_tool_signature(caller.llm_config["tools"][-1], is_remove=True)
    assert names(caller) == ["two"]
    caller.update_tool_signature("two", is_remove=True)
    assert "tools" not in caller.llm_config
    with pytest.raises(AssertionError, match="The agent config doesn't have tool two"):
        caller.update_tool_signature("two", is_remove=True)
    with pytest.raises(AssertionError, match="doesn't have function two"):
        caller.update_function_signature("two", is_remove=True)


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ("text", "must be of the type dict"),
        ({"type": "function"}, "has no 'function' with a 'name'"),
        ({"function": {"name": "a b"}}, "Invalid name: a b"),
    ],
)
def test_a_wrong_signature_is_refused_and_changes_nothing(signature: Any, problem: str) -> None:
    caller = with_model()
    with pytest.raises(ValueError, match=problem):
        caller.update_tool_signature(signature, is_remove=False)
    assert names(caller) == []


def test_registering_a_tool_keeps_the_usage_and_the_registered_client() -> None:
    caller = AssistantAgent("assistant", llm_config=own_model())
    caller.register_model_client(OwnClient)
    caller.generate_reply([{"role": "user", "content": "Hi"}])
    caller.register_for_llm(name="add", description="d")(add)
    assert caller.generate_reply([{"role": "user", "content": "Again"}]) == "Again"
    assert (caller.get_actual_usage() or {})["own"]["prompt_tokens"] == 2


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"a b": add}, r"Invalid name: a b\. Only letters"),
        ({"a" * 65: add}, "Name must be less than 64 characters"),
        ({"five": 5}, "The function 'five' is 5, which cannot be called"),
    ],
)
def test_names_and_functions_are_checked(functions: Any, problem: str) -> None:
    with pytest.raises((ValueError, TypeError), match=problem):
        executor().register_function(functions)
    with pytest.raises((ValueError, TypeError), match=problem):
        ConversableAgent("agent", llm_config=False, function_map=functions)
