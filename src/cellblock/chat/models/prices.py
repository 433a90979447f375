"""Prices of models, in US dollars for 1000 tokens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

_logger = logging.getLogger(__name__)

# Model, prompt, answer. These are AutoGen 0.2.40's, and Anthropic's.
_TABLE = """
    gpt-4o                      0.005    0.015
    gpt-4o-2024-05-13           0.005    0.015
    gpt-4o-2024-08-06           0.0025   0.01
    gpt-4o-mini                 0.00015  0.0006
    gpt-4o-mini-2024-07-18      0.00015  0.0006
    gpt-4-turbo-2024-04-09      0.01     0.03
    gpt-4-turbo-preview         0.01     0.03
    gpt-4-0125-preview          0.01     0.03
    gpt-4-1106-preview          0.01     0.03
    gpt-4-1106-vision-preview   0.01     0.03
    gpt-4                       0.03     0.06
    gpt-4-0314                  0.03     0.06
    gpt-4-0613                  0.03     0.06
    gpt-4-32k                   0.06     0.12
    gpt-4-32k-0314              0.06     0.12
    gpt-4-32k-0613              0.06     0.12
    gpt-3.5-turbo               0.0005   0.0015
    gpt-3.5-turbo-0125          0.0005   0.0015
    gpt-3.5-turbo-0301          0.0015   0.002
    gpt-3.5-turbo-0613          0.0015   0.002
    gpt-3.5-turbo-1106          0.001    0.002
    gpt-3.5-turbo-16k-0613      0.003    0.004
    gpt-3.5-turbo-instruct      0.0015   0.002
    gpt-35-turbo                0.0005   0.0015
    gpt-35-turbo-0125           0.0005   0.0015
    gpt-35-turbo-0301           0.0015   0.002
    gpt-35-turbo-0613           0.0015   0.002
    gpt-35-turbo-1106           0.001    0.002
    gpt-35-turbo-16k            0.003    0.004
    gpt-35-turbo-16k-0613       0.003    0.004
    gpt-35-turbo-instruct       0.0015   0.002
    claude-3-haiku-20240307     0.00025  0.00125
    claude-3-sonnet-20240229    0.003    0.015
    claude-3-opus-20240229      0.015    0.075
    claude-3-5-sonnet-20240620  0.003    0.015
    claude-3-5-sonnet-20241022  0.003    0.015
"""


@dataclass(frozen=True)
class Price:
    """What 1000 tokens cost."""

    prompt: float
    answer: float

    def cost(self, prompt_tokens: int, answer_tokens: int) -> float:
        """Return the cost of a request."""
        return (prompt_tokens * self.prompt + answer_tokens * self.answer) / 1000


_PRICES = {
    name: Price(float(prompt), float(answer))
    for name, prompt, answer in map(str.split, _TABLE.strip().splitlines())
}


def price_of(model: str, *, is_expected: bool = True) -> Price:
    """Return the price of `model`; 0 if it is not known, with a warning if it `is_expected`."""
    if is_expected and model not in _PRICES:
        _logger.warning(
            "Model %s is not found. The cost will be 0. In your config_list, add field "
            '{"price" : [prompt_price_per_1k, completion_token_price_per_1k]} '
            "for customized pricing.",
            model,
        )
    return _PRICES.get(model, Price(0, 0))


def to_price(value: object) -> Price | None:
    """Return the value of `price` in an entry of `config_list`; None if there is none.

    Raise `ValueError` if it is not a list of two numbers.
    """
    if value is None:
        return None
    numbers = list(cast(Sequence[Any], value)) if isinstance(value, list | tuple) else []
    if len(numbers) != 2 or not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(
            f"price is {value!r:.100}. Pass [price of 1000 prompt tokens, price of 1000 answer "
            "tokens], in US dollars."
        )
    return Price(float(numbers[0]), float(numbers[1]))
