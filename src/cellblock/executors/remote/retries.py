"""When a request is sent again, and after which delay. Pure: no I/O, no clock."""

from __future__ import annotations

import enum
import random

MAX_ATTEMPTS = 5
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 10.0  # seconds
_LONGEST_RETRY_AFTER = 60.0  # seconds; a service that asks for more is not waited for
_TOO_MANY_REQUESTS = 429
_TEMPORARY = (408, 500, 502, 503, 504)


class NoAnswer(enum.Enum):
    """Why a request has no answer: it was not sent, or its answer was lost."""

    NOT_SENT = enum.auto()
    LOST = enum.auto()


def retry_delay(
    attempt: int, end: int | NoAnswer, retry_after: str | None, *, is_repeatable: bool
) -> float | None:
    """Return the seconds to wait before the next attempt; None if there should be none.

    attempt         number of the attempt that failed, from 1
    end             HTTP status of its answer, or why there is none
    retry_after     the header of that name
    is_repeatable   whether carrying out the request twice does no harm
    """
    # Otherwise the service may have carried out the request.
    is_untouched = end in (NoAnswer.NOT_SENT, _TOO_MANY_REQUESTS)
    is_temporary = is_untouched or end is NoAnswer.LOST or end in _TEMPORARY
    if attempt >= MAX_ATTEMPTS or not is_temporary or not (is_untouched or is_repeatable):
        return None
    wanted = _seconds(retry_after)
    if wanted is not None:
        return wanted if wanted <= _LONGEST_RETRY_AFTER else None
    longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (attempt - 1))
    return random.uniform(longest / 2, longest)


def _seconds(retry_after: str | None) -> float | None:
    """Return the number in a Retry-After header; None if there is none, or it is a date."""
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None
