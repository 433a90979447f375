"""AutoGen 0.2's `execution_policies`: whether the blocks of a language run or are only saved."""

from __future__ import annotations

from collections.abc import Mapping

from ...languages import LANGUAGES, Action, check_policies, find_language

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


def merge(default: Mapping[str, bool], given: Mapping[str, bool] | None) -> dict[str, bool]:
    """Return the policies of an executor. One for a tag of a language is for all of its tags."""
    policies = dict(default)
    for tag, runs in (given or {}).items():
        language = find_language(tag)
        for other in [tag, *policies]:
            if other == tag or find_language(other) is language is not None:
                policies[other] = runs
    return policies


def to_actions(policies: Mapping[str, bool]) -> dict[str, Action]:
    """Return `policies` as the `execution_policies` of our executors.

    A language runs if the policies have it, and none of its tags with False. Raise `ValueError`
    for a language that cannot run.
    """
    actions = dict[str, Action]()
    for language in LANGUAGES:
        tags = [tag for tag in (language.name, *language.aliases) if tag in policies]
        if tags or language.argv is not None:
            runs = bool(tags) and all(policies[tag] for tag in tags)
            actions[language.name] = "execute" if runs else "save"
    actions.update({tag: "save" for tag in policies if find_language(tag) is None})
    return check_policies(actions)
