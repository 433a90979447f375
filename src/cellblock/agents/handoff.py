"""Handoff: a tool by which a model lets another agent continue."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, model_validator

from ..tools.base import BaseTool
from ..tools.function_tool import FunctionTool


class Handoff(BaseModel):
    """The offer to a model to hand over to agent `target`.

    description   when to hand over, and what the target can do
    name          the name of the tool
    message       what the target is told

    Missing values are derived from the name of the target.
    """

    target: str
    description: str = ""
    name: str = ""
    message: str = ""

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        if self.name and not self.name.isidentifier():
            raise ValueError(f"Handoff name must be a valid identifier: {self.name}")
        self.description = self.description or f"Handoff to {self.target}."
        self.name = self.name or f"transfer_to_{self.target}".lower()
        self.message = self.message or (
            f"Transferred to {self.target}, adopting the role of {self.target} immediately."
        )
        return self

    @property
    def handoff_tool(self) -> BaseTool[Any, Any]:
        """The tool. Its result is the message."""

        async def hand_over() -> str:
            return self.message

        return FunctionTool(hand_over, self.description, self.name, strict=True)
