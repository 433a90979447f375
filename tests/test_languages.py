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


def test_tag_finds_its_language() -> None:
    tags = {
        "python": ["python", "Python", "PYTHON", "py", "python3", "python3.11", "ipython", " py "],
        "sh": ["sh", "shell", "Shell"],
        "bash": ["bash", "zsh"],
        "pwsh": ["pwsh", "powershell", "ps1", "PowerShell"],
        "javascript": ["javascript", "JavaScript", "js", "node"],
        "text": ["text", "txt"],
    }
    found = {name: [known(tag).name for tag in named] for name, named in tags.items()}
    assert found == {name: [name] * len(named) for name, named in tags.items()}
    unknown = ["", "python2", "cobol", "pythonic", "python 3", "\0", "\ud800"]
    assert [tag for tag in unknown if find_language(tag) is not None] == []


def test_tags_are_unique_and_lower_case() -> None:
    tags = [tag for language in LANGUAGES for tag in (language.name, *language.aliases)]
    assert len(set(tags)) == len(tags)
    assert all(tag == tag.strip().lower() for tag in tags)


def test_only_languages_with_an_interpreter_are_executed_by_default() -> None:
    for language in LANGUAGES:
        assert (language.policy == "execute") == (language.argv is not None), language.name


def test_language_has_suffix_and_interpreter() -> None:
    languages = {
        "py": ("py", ("python",)),
        "shell": ("sh", ("sh",)),
        "zsh": ("bash", ("bash",)),
        "ps1": ("ps1", ("pwsh", "-NoProfile", "-ExecutionPolicy", "Bypass", "-File")),
        "js": ("js", ("node",)),
        "html": ("html", None),
    }
    assert {tag: (known(tag).suffix, known(tag).argv) for tag in languages} == languages


def test_default_policy_comes_from_the_table() -> None:
    actions = {"py": "execute", "bash": "execute", "js": "execute", "css": "save"}
    actions["output"] = "ignore"
    assert {tag: action_for(known(tag)) for tag in actions} == actions
    assert {tag: action_for(known(tag), {}) for tag in actions} == actions


def test_policy_applies_under_any_name_of_its_language_only() -> None:
    assert action_for(known("python"), {"PY3": "save"}) == "save"
    assert action_for(known("js"), {"node": "ignore"}) == "ignore"
    assert action_for(known("html"), {"node": "ignore", "htm": "ignore"}) == "ignore"
    assert action_for(known("bash"), {"sh": "ignore", "cobol": "save"}) == "execute"


def test_invalid_policies_are_refused() -> None:
    invalid: dict[str, Mapping[str, Any]] = {
        "'pyhton'": {"pyhton": "ignore"},
        "'run'": {"python": "run"},
        "True": {"python": True},
        "html blocks cannot be run": {"html": "execute"},
        "different policies for python": {"py": "save", "python3": "execute"},
    }
    for message, policies in invalid.items():
        with pytest.raises(ValueError, match=message):
            check_policies(policies)
    valid: Mapping[str, Any] = {"py": "save", "python": "save", "Bash": "ignore"}
    check_policies({**valid, "html": "ignore", "sh": "execute"})
