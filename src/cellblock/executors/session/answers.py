"""Check what a live session answers: code in the session can have changed it."""

from __future__ import annotations

from typing import TypeVar

from ...errors import CheckpointError, SessionError
from ...runtime.messages import Answer

_Field = TypeVar("_Field")


def check_answer(answer: Answer, kind: type[SessionError] = SessionError) -> Answer:
    """Return `answer`. If it reports an error, raise it as `kind`, and a refusal of a copy as
    `CheckpointError`.
    """
    if refused := answer.refused:
        raise CheckpointError(
            f"The session cannot be copied because it has {', '.join(refused)}. Close that first."
        )
    if answer.why:
        raise kind(f"The session did not answer within the limits ({answer.why}).")
    if answer.error:
        raise kind(answer.error)
    return answer


def required(field: _Field | None, name: str) -> _Field:
    """Return a field of an answer. Raise `SessionError` if it is missing."""
    if field is None:
        raise SessionError(
            f"The session's answer has no {name!r}: code in the session has modified it. "
            "Call restart()."
        )
    return field
