"""What a function of a chat receives, and what the model reads of its result."""

from __future__ import annotations

import asyncio
import inspect
from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from cellblock.chat.tools.function_arguments import (
    get_load_param_if_needed_function,
    load_basemodels_if_needed,
)


class Money(BaseModel):
    currency: str
    amount: float = 100.0


def test_dicts_become_objects_where_the_function_takes_a_pydantic_class() -> None:
    def f(a: Money, b: Annotated[Money, "x"], n: int) -> tuple[Money, Money, int]:
        return a, b, n

    loaded = load_basemodels_if_needed(f)
    expected = (Money(currency="USD"), Money(currency="EUR", amount=2), 5)
    assert loaded(a={"currency": "USD"}, b={"currency": "EUR", "amount": 2}, n=5) == expected  # type: ignore[arg-type]
    assert loaded({"currency": "USD"}, Money(currency="EUR", amount=2), 5) == expected  # type: ignore[arg-type]


def test_a_dict_that_does_not_fit_raises() -> None:
    def f(a: Money) -> str:
        return str(a)

    with pytest.raises(ValidationError, match="currency"):
        load_basemodels_if_needed(f)(a={})  # type: ignore[arg-type]


def test_an_async_function_stays_async() -> None:
    async def f(a: Money) -> str:
        return a.currency

    loaded = load_basemodels_if_needed(f)
    assert inspect.iscoroutinefunction(loaded)
    assert asyncio.run(loaded(a={"currency": "USD"})) == "USD"  # type: ignore[arg-type]


def test_other_types_need_no_loading() -> None:
    assert get_load_param_if_needed_function(int) is None
    load = get_load_param_if_needed_function(Annotated[Money, "x"])
    assert load is not None
    assert load({"currency": "USD"}, Money) == Money(currency="USD")
