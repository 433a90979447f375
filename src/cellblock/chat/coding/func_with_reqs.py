"""Functions that blocks can import, with the packages and imports that they need."""

from ...functions.module import (
    Alias,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    ImportFromModule,
    with_requirements,
)

__all__ = [
    "Alias",
    "FunctionWithRequirements",
    "FunctionWithRequirementsStr",
    "ImportFromModule",
    "with_requirements",
]
