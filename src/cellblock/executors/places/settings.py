"""PlaceSettings: the settings of the executors that run blocks next to a work folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...functions.module import Function, FunctionModule
from ...languages import Action, check_policies
from ...limits import SANDBOX_LIMITS, Limits
from ..argument_checks import check_bool, check_folder, check_limits, check_strings, check_timeout
from ..settings import BlockSettings


@dataclass(frozen=True, kw_only=True)
class PlaceSettings(BlockSettings):
    """See `CommandLineExecutor`."""

    work_dir: Path | None
    cleanup_temp_files: bool
    packages: tuple[str, ...]
    execution_policies: Mapping[str, Action]
    save_output: bool

    @classmethod
    def checked(
        cls,
        timeout: float | None,
        work_dir: str | os.PathLike[str] | None,
        functions: Sequence[Function],
        functions_module: str,
        cleanup_temp_files: bool,
        *,
        packages: Sequence[str],
        limits: Limits,
        execution_policies: Mapping[str, Action] | None,
        save_output: bool,
        default_limits: Limits = SANDBOX_LIMITS,
    ) -> Self:
        """Return the settings. Raise `ValueError` or `FunctionError` if one is invalid."""
        return cls(
            timeout=check_timeout(timeout),
            functions=FunctionModule(functions, functions_module),
            cleanup_temp_files=check_bool("cleanup_temp_files", cleanup_temp_files),
            packages=check_strings("packages", packages),
            limits=check_limits(limits, default_limits),
            execution_policies=check_policies(execution_policies or {}),
            save_output=check_bool("save_output", save_output),
            work_dir=check_folder("work_dir", work_dir),
        )
