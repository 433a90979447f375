"""What known models cost, as their services' price lists said when this was written."""

from __future__ import annotations

from ....models.messages import RequestUsage

# First characters of the name; dollars for a million tokens read and written. The longest row that
# fits a name counts.
_PRICES = """
    gpt-5               1.25    10
    gpt-5-mini          0.25    2
    gpt-5-nano          0.05    0.4
    gpt-4.1             2       8
    gpt-4.1-mini        0.4     1.6
    gpt-4.1-nano        0.1     0.4
    gpt-4o              2.5     10
    gpt-4o-mini         0.15    0.6
    gpt-4-turbo         10      30
    gpt-4               30      60
    gpt-3.5-turbo       0.5     1.5
    o4-mini             1.1     4.4
    o3                  2       8
    o3-mini             1.1     4.4
    o1                  15      60
    claude-3-haiku      0.25    1.25
    claude-3-5-haiku    0.8     4
    claude-haiku-4-5    1       5
    claude-3-5-sonnet   3       15
    claude-3-7-sonnet   3       15
    claude-sonnet-4     3       15
    claude-3-opus       15      75
    claude-opus-4       15      75
    claude-opus-4-5     5       25
"""
Price = tuple[float, float]


def known_price(model: str) -> Price | None:
    """Return the dollars for a million tokens read and written, or None if they are not known."""
    rows = [row.split() for row in _PRICES.strip().splitlines()]
    fitting = [row for row in rows if model == row[0] or model.startswith(f"{row[0]}-")]
    if not fitting:
        return None
    _, read, written = max(fitting, key=lambda row: len(row[0]))
    return float(read), float(written)


def describe_usage(usage: RequestUsage, price: Price | None) -> str:
    """Return the tokens of `usage`, and about what they cost if the price is known."""
    text = f"{usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written"
    if price is None:
        return text
    cost = (usage.prompt_tokens * price[0] + usage.completion_tokens * price[1]) / 1e6
    return f"{text}, about ${cost:.4f}" if cost < 1 else f"{text}, about ${cost:.2f}"
