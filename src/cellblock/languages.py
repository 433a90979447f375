"""The languages: one table of names, file suffixes, programs and what is done with a block by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Action = Literal["execute", "save", "ignore"]


@dataclass(frozen=True)
class Language:
    """Describe one language.

    name      what it is called in results
    aliases   other tags that mean it, in lower case
    suffix    suffix of its files, without the dot
    argv      program and leading arguments; the file's path is appended. None: it cannot be run
    policy    what is done with its blocks unless the caller says otherwise
    comments  whether its files may hold comments; else the line that names a block's file is no part of that
    """

    name: str
    aliases: tuple[str, ...]
    suffix: str
    argv: tuple[str, ...] | None
    policy: Action
    comments: bool = True


_PYTHON_VERSIONS = tuple(f"python3.{minor}" for minor in range(30))
_POWERSHELL = ("pwsh", "-NoProfile", "-ExecutionPolicy", "Bypass", "-File")

LANGUAGES: tuple[Language, ...] = (
    # Executors put their own interpreter in the place of "python".
    Language(
        "python",
        ("py", "py3", "python3", "ipython", "ipython3", *_PYTHON_VERSIONS),
        "py",
        ("python",),
        "execute",
    ),
    Language("sh", ("shell",), "sh", ("sh",), "execute"),
    # Few machines have a zsh, and what agents tag with it is what bash understands as well.
    Language("bash", ("zsh",), "bash", ("bash",), "execute"),
    Language("pwsh", ("powershell", "ps1"), "ps1", _POWERSHELL, "execute"),
    # AutoGen 0.2 only saves it. But who tags a block "node" wants it run, and exit code 0 for a script that
    # was merely saved would look like success; a missing node is an honest error.
    Language("javascript", ("js", "node", "nodejs"), "js", ("node",), "execute"),
    Language("html", ("htm",), "html", None, "save"),
    Language("css", (), "css", None, "save"),
    # What agents show in these is an example more often than a file, unless it has a file's name on its first line;
    # `execution_policies` says otherwise.
    Language("json", (), "json", None, "ignore", comments=False),
    Language("yaml", ("yml",), "yaml", None, "ignore"),
    Language("toml", (), "toml", None, "ignore"),
    Language("xml", ("svg",), "xml", None, "ignore"),
    Language("csv", (), "csv", None, "ignore", comments=False),
    Language("sql", (), "sql", None, "ignore"),
    Language("markdown", ("md",), "md", None, "ignore"),
    Language("diff", ("patch",), "diff", None, "ignore"),
    Language("text", ("txt", "plain", "plaintext", "none"), "txt", None, "ignore", comments=False),
    # What a program printed, or a transcript with prompts in it: shown to the reader, never meant to be run.
    Language(
        "output",
        ("stdout", "stderr", "log", "traceback", "pytb"),
        "txt",
        None,
        "ignore",
        comments=False,
    ),
    Language(
        "console",
        ("shell-session", "shellsession", "sh-session", "pycon"),
        "txt",
        None,
        "ignore",
        comments=False,
    ),
)

_BY_TAG = {tag: language for language in LANGUAGES for tag in (language.name, *language.aliases)}


def find_language(tag: str) -> Language | None:
    """Give the language that `tag` names, upper or lower case alike; None when there is none in the table."""
    return _BY_TAG.get(tag.strip().lower())


def action_for(
    language: Language, policies: Mapping[str, Action] | None = None, *, names_file: bool = False
) -> Action:
    """Give what is to be done with blocks of `language`.

    `policies` says it for some languages, each under any of its names; the table says it for the rest. Check
    `policies` with `check_policies` first. What the table ignores is saved where the block names its file.
    """
    for tag, action in (policies or {}).items():
        if find_language(tag) is language:
            return action
    return "save" if names_file and language.policy == "ignore" else language.policy


def check_policies(policies: Mapping[str, Action]) -> None:
    """Raise `ValueError` unless `policies` names known languages and possible actions, without contradiction.

    A misspelt name would otherwise leave a language running that its owner wanted to be ignored.
    """
    seen: dict[str, Action] = {}
    for tag, action in policies.items():
        language = find_language(tag)
        if language is None:
            raise ValueError(
                f"Unknown language in the policies: {tag!r}. Known: {', '.join(_names())}."
            )
        if action not in get_args(Action):
            raise ValueError(
                f"The policy of {tag!r} must be 'execute', 'save' or 'ignore', not {action!r}."
            )
        if action == "execute" and language.argv is None:
            raise ValueError(
                f"{language.name} cannot be run: its policy must be 'save' or 'ignore'."
            )
        if seen.setdefault(language.name, action) != action:
            raise ValueError(
                f"The policies name {language.name} twice and do not agree: keep one of the names."
            )


def _names() -> list[str]:
    return [language.name for language in LANGUAGES]
