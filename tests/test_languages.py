"""The table of languages and the policies that override it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cellblock.languages import LANGUAGES, Language, action_for, check_policies, find_language


def known(tag: str) -> Language:
    language = find_language(tag)
    assert language is not None, tag
    return language


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        (
            "python",
            ["python", "Python", "PYTHON", "py", "python3", "python3.11", "ipython", " python "],
        ),
        ("sh", ["sh", "shell", "Shell"]),
        ("bash", ["bash", "zsh"]),
        ("pwsh", ["pwsh", "powershell", "ps1", "PowerShell"]),
        ("javascript", ["javascript", "JavaScript", "js", "node"]),
        ("text", ["text", "txt"]),
    ],
)
def test_tag_finds_its_language(name: str, tags: list[str]) -> None:
    assert [known(tag).name for tag in tags] == [name] * len(tags)


@pytest.mark.parametrize("tag", ["", "python2", "cobol", "pythonic", "python 3", "\0", "\ud800"])
def test_unknown_tag_finds_no_language(tag: str) -> None:
    assert find_language(tag) is None


def test_tags_are_unique_and_lower_case() -> None:
    tags = [tag for language in LANGUAGES for tag in (language.name, *language.aliases)]

    assert len(set(tags)) == len(tags)
    assert all(tag == tag.strip().lower() for tag in tags)


def test_only_languages_with_an_interpreter_are_executed_by_default() -> None:
    for language in LANGUAGES:
        assert (language.policy == "execute") == (language.argv is not None), language.name


@pytest.mark.parametrize(
    ("tag", "suffix", "argv"),
    [
        ("py", "py", ("python",)),
        ("shell", "sh", ("sh",)),
        ("zsh", "bash", ("bash",)),
        ("ps1", "ps1", ("pwsh", "-NoProfile", "-ExecutionPolicy", "Bypass", "-File")),
        ("js", "js", ("node",)),
        ("html", "html", None),
    ],
)
def test_language_has_suffix_and_interpreter(
    tag: str, suffix: str, argv: tuple[str, ...] | None
) -> None:
    assert (known(tag).suffix, known(tag).argv) == (suffix, argv)


@pytest.mark.parametrize(
    ("tag", "action"),
    [
        ("py", "execute"),
        ("bash", "execute"),
        ("js", "execute"),
        ("css", "save"),
        ("output", "ignore"),
    ],
)
def test_default_policy_comes_from_the_table(tag: str, action: str) -> None:
    assert action_for(known(tag)) == action
    assert action_for(known(tag), {}) == action


def test_policy_applies_under_any_name_of_the_language() -> None:
    assert action_for(known("python"), {"PY3": "save"}) == "save"
    assert action_for(known("js"), {"node": "ignore"}) == "ignore"
    assert action_for(known("html"), {"node": "ignore", "htm": "ignore"}) == "ignore"


def test_policy_does_not_affect_other_languages() -> None:
    assert action_for(known("bash"), {"sh": "ignore", "cobol": "save"}) == "execute"


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"pyhton": "ignore"}, "'pyhton'"),
        ({"python": "run"}, "'run'"),
        ({"python": True}, "True"),
        ({"html": "execute"}, "html blocks cannot be run"),
        ({"py": "save", "python3": "execute"}, "different policies for python"),
    ],
)
def test_invalid_policies_are_refused(policies: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_policies(policies)


def test_valid_policies_are_accepted() -> None:
    check_policies(
        {"py": "save", "python": "save", "Bash": "ignore", "html": "ignore", "sh": "execute"}
    )
