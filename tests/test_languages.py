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
def test_every_tag_of_a_language_finds_it(name: str, tags: list[str]) -> None:
    assert [known(tag).name for tag in tags] == [name] * len(tags)


@pytest.mark.parametrize("tag", ["", "python2", "cobol", "pythonic", "python 3", "\0", "\ud800"])
def test_an_unknown_tag_finds_nothing(tag: str) -> None:
    assert find_language(tag) is None


def test_no_tag_means_two_languages_and_all_are_lower_case() -> None:
    tags = [tag for language in LANGUAGES for tag in (language.name, *language.aliases)]

    assert len(set(tags)) == len(tags)
    assert all(tag == tag.strip().lower() for tag in tags)


def test_languages_with_a_program_are_executed_and_no_others() -> None:
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
def test_a_language_has_its_suffix_and_its_program(
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
def test_without_policies_the_table_decides(tag: str, action: str) -> None:
    assert action_for(known(tag)) == action
    assert action_for(known(tag), {}) == action


def test_a_policy_under_any_name_holds_for_the_language() -> None:
    assert action_for(known("python"), {"PY3": "save"}) == "save"
    assert action_for(known("js"), {"node": "ignore"}) == "ignore"
    assert action_for(known("html"), {"node": "ignore", "htm": "ignore"}) == "ignore"


def test_a_policy_leaves_other_languages_alone() -> None:
    assert action_for(known("bash"), {"sh": "ignore", "cobol": "save"}) == "execute"


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"pyhton": "ignore"}, "'pyhton'"),
        ({"python": "run"}, "'run'"),
        ({"python": True}, "True"),
        ({"html": "execute"}, "html cannot be run"),
        ({"py": "save", "python3": "execute"}, "python twice"),
    ],
)
def test_policies_that_cannot_hold_are_refused(policies: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_policies(policies)


def test_policies_that_can_hold_are_accepted() -> None:
    check_policies(
        {"py": "save", "python": "save", "Bash": "ignore", "html": "ignore", "sh": "execute"}
    )
