"""The table of languages: names, file suffixes, interpreters and default actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Action = Literal["execute", "save", "ignore"]


@dataclass(frozen=True)
class Language:
    """One language.

    name       its name in results
    aliases    other tags of the language, in lower case
    suffix     suffix of its files, without the dot
    argv       program and leading arguments; the path of the file is appended. None: cannot be run
    policy     what to do with its blocks by default
    comments   True if its files may hold comments; if not, the `# filename:` line is not saved
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
    # Executors replace "python" with the path of their own interpreter.
    Language(
        "python",
        ("py", "py3", "python3", "ipython", "ipython3", "tool_code", *_PYTHON_VERSIONS),
        "py",
        ("python",),
        "execute",
    ),
    Language("sh", ("shell",), "sh", ("sh",), "execute"),
    # Few machines have zsh, and bash runs nearly everything that models tag with it.
    Language("bash", ("zsh",), "bash", ("bash",), "execute"),
    Language("pwsh", ("powershell", "ps1"), "ps1", _POWERSHELL, "execute"),
    # AutoGen 0.2 only saves these blocks, with exit code 0. That looks as if the script had run.
    # Here the block runs, and fails where node is not installed.
    Language("javascript", ("js", "node", "nodejs"), "js", ("node",), "execute"),
    Language("html", ("htm",), "html", None, "save"),
    Language("css", (), "css", None, "save"),
    # Models use these mostly for examples, so a block is saved only if its first line names a file.
    # `execution_policies` overrides this.
    Language("json", (), "json", None, "ignore", comments=False),
    Language("yaml", ("yml",), "yaml", None, "ignore"),
    Language("toml", (), "toml", None, "ignore"),
    Language("xml", ("svg",), "xml", None, "ignore"),
    Language("csv", (), "csv", None, "ignore", comments=False),
    Language("sql", (), "sql", None, "ignore"),
    Language("markdown", ("md",), "md", None, "ignore"),
    Language("diff", ("patch",), "diff", None, "ignore"),
    Language("text", ("txt", "plain", "plaintext", "none"), "txt", None, "ignore", comments=False),
    # Output of a program or a transcript of a shell session, which is not meant to be run.
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
    """Return the language with the name or alias `tag`, in any case; None if it is unknown."""
    return _BY_TAG.get(tag.strip().lower())


def action_for(
    language: Language, policies: Mapping[str, Action] | None = None, *, names_file: bool = False
) -> Action:
    """Return what to do with a block of `language`.

    `policies` overrides the table for the languages in it, each under any of its names; validate it
    with `check_policies` first. By the table, a block to ignore is saved if it names a file.
    """
    for tag, action in (policies or {}).items():
        if find_language(tag) is language:
            return action
    return "save" if names_file and language.policy == "ignore" else language.policy


def check_policies(policies: Mapping[str, Action]) -> dict[str, Action]:
    """Return a copy of `policies`.

    Raise `ValueError` for an unknown language, an impossible action or a contradiction. A misspelt
    name must not go unnoticed: the language that the caller wants to ignore would run.
    """
    checked, seen = dict(policies), dict[str, Action]()
    for tag, action in checked.items():
        language = find_language(tag)
        if language is None:
            known = ", ".join(entry.name for entry in LANGUAGES)
            raise ValueError(
                f"Unknown language in execution_policies: {tag!r}. Use one of: {known}."
            )
        if action not in get_args(Action):
            raise ValueError(
                f"The policy of {tag!r} must be 'execute', 'save' or 'ignore', not {action!r}."
            )
        if action == "execute" and language.argv is None:
            raise ValueError(
                f"{language.name} blocks cannot be run: set their policy to 'save' or 'ignore'."
            )
        if seen.setdefault(language.name, action) != action:
            raise ValueError(
                f"execution_policies has two different policies for {language.name}. Keep one."
            )
    return checked
