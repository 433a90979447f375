"""ToolResult: what a tool call gives to a model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ..models.image import Image


class TextResultContent(BaseModel):
    """Text."""

    content: str
    type: Literal["TextResultContent"] = "TextResultContent"


class ImageResultContent(BaseModel):
    """A picture."""

    content: Image
    type: Literal["ImageResultContent"] = "ImageResultContent"


ResultContent = Annotated[TextResultContent | ImageResultContent, Field(discriminator="type")]


class ToolResult(BaseModel):
    """The result of the call of tool `name`. If it failed, `result` is the error's message."""

    name: str
    result: list[ResultContent]
    is_error: bool = False
    type: Literal["ToolResult"] = "ToolResult"

    def to_text(self, replace_image: str | None = None) -> str:
        """Return the texts, with `replace_image` for each image (None: its Base64 text)."""
        parts: list[str] = []
        for item in self.result:
            if isinstance(item, TextResultContent):
                parts.append(item.content)
            elif replace_image is None:
                parts.append(f"[Image: {item.content.to_base64()}]")
            else:
                parts.append(replace_image)
        return "\n".join(parts)
