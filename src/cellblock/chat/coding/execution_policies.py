"""AutoGen 0.2's `execution_policies`: whether the blocks of a language run or are only saved."""

from __future__ import annotations

from collections.abc import Mapping

from ...languages import Action

DEFAULT_EXECUTION_POLICY: dict[str, bool] = {
    "bash": True,
    "shell": True,
    "sh": True,
    "pwsh": True,
    "powershell": True,
    "ps1": True,
    "python": True,
    "javascript": False,
    "html": False,
    "css": False,
}
"""By default JavaScript, HTML and CSS are saved to a file and not run."""
_SAVED_BY_DEFAULT: dict[str, Action] = {"javascript": "save"}  # the others are saved anyway


def to_actions(policies: Mapping[str, bool] | None) -> dict[str, Action]:
    """Return `policies` as the `execution_policies` of our executors.

    A policy for one tag of a language, such as "shell", is a policy for the language.
    """
    given: dict[str, Action] = {
        _full_name(tag): "execute" if runs else "save" for tag, runs in (policies or {}).items()
    }
    return {**_SAVED_BY_DEFAULT, **given}


def _full_name(tag: str) -> str:
    return "javascript" if tag in ("js", "javascript") else tag
