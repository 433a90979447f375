"""Errors of the model in the words of the command line."""

from __future__ import annotations

from ....errors import ModelError
from ....models.service_errors import ADVICE

# The advice for programmers, and what stands in its place.
_WORDS = {
    ADVICE[400]: "",
    ADVICE[404]: "Check --model and --base-url.",
    ADVICE[413]: "Ask for less.",
    ADVICE[429]: "Wait, then ask again.",
    ADVICE["timeout"]: "Ask again.",
    ADVICE["address"]: "Check --base-url and the network.",
    ADVICE["empty"]: "The conversation may be too long for the model.",
}


def in_words_of_the_command(error: ModelError) -> ModelError:
    """Return `error` with advice in terms of the command's options."""
    advice = _WORDS.get(error.advice, error.advice)
    text = f"{str(error).removesuffix(error.advice).rstrip()} {advice}".rstrip()
    return ModelError(text, status=error.status, request_id=error.request_id)
