"""The options with which a conversation ran, as its file keeps them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....limits import MAX_SECONDS, MIN_MEMORY_BYTES
from ...sizes import exact_size
from ..settings import ChatSettings

_COMMENT = re.compile(r"<!-- cellblock-options (\{.*\}) -->\n")


class SavedOptions(BaseModel):
    """The options that `--resume` uses again, and `unprotected`: names of others that were given.

    The file may be the work of others, also of code. So it never says where code runs without
    protection, what it can reach, or in which image or environment.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    executor: Literal["session", "sandbox", "docker-session", "docker"] | None = None
    timeout: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = None
    memory_bytes: Annotated[int, Field(ge=MIN_MEMORY_BYTES)] | None = None
    files: Annotated[int, Field(ge=1)] | None = None
    packages: tuple[str, ...] = ()
    unprotected: tuple[
        Literal["--executor local", "--network", "--image", "--env", "--work-dir"], ...
    ] = ()

    @classmethod
    def of(cls, settings: ChatSettings) -> SavedOptions:
        """Return the saved part of `settings`."""
        others = {
            "--executor local": settings.executor == "local",
            "--network": settings.network,
            "--image": settings.image is not None,
            "--env": settings.env is not None,
            "--work-dir": settings.work_dir is not None,
        }
        return cls.model_validate(
            {
                "executor": None if settings.executor == "local" else settings.executor,
                "timeout": settings.timeout,
                "memory_bytes": settings.memory_bytes,
                "files": settings.files,
                "packages": settings.packages,
                "unprotected": [name for name, is_given in others.items() if is_given],
            }
        )

    def add_to(
        self, settings: ChatSettings, is_given: Callable[[str], bool]
    ) -> tuple[ChatSettings, str]:
        """Return `settings` with these options unless they are given, and the lines that say so."""
        found = self.model_dump(exclude={"unprotected"}, exclude_none=True)
        changed = {
            name: value
            for name, value in found.items()
            if not is_given(name) and value != getattr(settings, name)
        }
        mine = SavedOptions.of(settings).unprotected
        missing = [name for name in self.unprotected if name not in mine]
        lines: list[str] = []
        if changed:
            lines.append(f"it ran with {_arguments(changed)}, and does again")
        if missing:
            lines.append(
                f"it ran with {', '.join(missing)}, which no file can ask for: pass it again if "
                "you want it"
            )
        return replace(settings, **changed), "\n".join(lines)


def options_comment(options: SavedOptions) -> str:
    """Return the first line of a Markdown file, which Markdown hides."""
    values = options.model_dump_json(exclude_defaults=True).replace(">", "\\u003e")
    return f"<!-- cellblock-options {values} -->\n"


def read_options(path: Path) -> SavedOptions:
    """Return the options in the file `path`; those that cannot be read are missing."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            values = json.loads(text)["metadata"]["cellblock"]["options"]
        else:
            found = _COMMENT.match(text)
            values = json.loads(found[1] if found else "{}")
        return SavedOptions.model_validate(values)
    except (OSError, ValueError, LookupError, TypeError, ValidationError, RecursionError):
        return SavedOptions()


def _arguments(changed: dict[str, object]) -> str:
    """Return options as they are typed."""
    texts: list[str] = []
    for name, value in changed.items():
        match name, value:
            case "packages", tuple(names):  # pyright: ignore[reportUnknownVariableType]
                texts += [f"--package {package}" for package in names]  # pyright: ignore[reportUnknownVariableType]
            case "memory_bytes", int(size):
                texts.append(f"--memory {exact_size(size)}")
            case "timeout", float(seconds):
                texts.append(f"--timeout {seconds:g}")
            case _:
                texts.append(f"--{name} {value}")
    return " ".join(texts)
