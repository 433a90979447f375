"""Check what a live session answers: code in the session can have changed it."""

from __future__ import annotations

from typing import Any

from ...errors import CheckpointError, SessionError


def check_answer(answer: dict[str, Any], kind: type[SessionError] = SessionError) -> dict[str, Any]:
    """Return `answer`. If it reports an error, raise it as `kind`, and a refusal of a copy as
    `CheckpointError`.
    """
    if refused := answer.get("refused"):
        raise CheckpointError(
            f"The session cannot be copied because it has {', '.join(refused)}. Close that first."
        )
    if answer.get("why"):
        raise kind(f"The session did not answer within the limits ({answer['why']}).")
    if error := answer.get("error"):
        raise kind(str(error))
    return answer


def answer_field(answer: dict[str, Any], name: str) -> Any:
    """Return a field of `answer`. Raise `SessionError` if it is missing."""
    if answer.get(name) is None:
        raise SessionError(
            f"The session's answer has no {name!r}: code in the session has modified it. "
            "Call restart()."
        )
    return answer[name]
