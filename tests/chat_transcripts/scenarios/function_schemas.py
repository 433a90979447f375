"""What a model is told about functions, and what it reads of their results."""

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from scripted import model_config, outcome, tool_call


class Money(BaseModel):
    currency: Annotated[Literal["USD", "EUR"], Field(description="The code")]
    amount: Annotated[float, Field(ge=0)] = 100.0


class Order(BaseModel):
    price: Money
    note: str = ""


def plain(a: str, b: int = 2, *, c: list[int], d: float | None = None) -> str:
    return f"{a} {b} {c} {d}"


def described(a: Annotated[int, "The first"], b: Annotated[dict[str, int], "Counts"]) -> str:
    return f"{a} {b}"


def choice(color: Literal["red", "blue"] = "red", anything: Any = None) -> str:
    return f"{color} {anything}"


def objects(price: Money, other: Annotated[Money, "The other"]) -> Money:
    return Money(currency=price.currency, amount=price.amount + other.amount)


def nested(order: Order) -> str:
    return f"{type(order).__name__} {order.price.currency}"


async def later(a: int) -> list[int]:
    return [a]


def untyped(a, b=1):
    return a


def number_described(a: Annotated[int, 5]) -> int:
    return a


def field_described(a: Annotated[int, Field(description="From a field")]) -> int:
    return a


def no_json(a: int) -> set[int]:
    return {a}


def run(lib):
    yield from schemas(lib)
    yield from results(lib)


def schemas(lib):
    agent = lib.ConversableAgent("agent", human_input_mode="NEVER", llm_config=model_config())
    for function in (plain, described, choice, objects, later, nested):
        agent.register_for_llm(description=f"About {function.__name__}")(function)
        yield agent.llm_config["tools"][-1]
    for function in (untyped, number_described, field_described):
        yield outcome(agent.register_for_llm(description="d"), function) is function
    yield outcome(agent.register_for_llm(description="d"), untyped)
    yield outcome(agent.register_for_llm(description="d"), number_described)
    yield outcome(agent.register_for_llm(name="a b", description="d"), choice)
    yield outcome(agent.register_for_llm(name="a" * 65, description="d"), choice)


def results(lib):
    user = lib.ConversableAgent("user", human_input_mode="NEVER", llm_config=False)
    for function in (plain, objects, nested, later, no_json):
        user.register_for_execution()(function)
    dollars = '{"currency": "USD"}'
    for name, arguments in (
        ("plain", '{"a": "é", "c": [1]}'),
        ("plain", '{"a": "line one\nline two", "c": []}'),
        ("plain", "{}"),
        ("objects", f'{{"price": {dollars}, "other": {dollars}}}'),
        ("nested", f'{{"order": {{"price": {dollars}}}}}'),
        ("later", '{"a": 5}'),
        ("no_json", '{"a": 5}'),
    ):
        message = {"content": "", "tool_calls": [tool_call(name, arguments)]}
        yield user.generate_tool_calls_reply(messages=[message])
        yield asyncio.run(user.a_generate_tool_calls_reply(messages=[message]))
