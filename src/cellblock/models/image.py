"""Image: a picture in a message."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

_DATA_URI = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)
# The first bytes of a file say which format it has.
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF", "image/webp"),
)
Detail = Literal["auto", "low", "high"]


class Image:
    """A picture: the bytes of an image file and its MIME type.

    Create one from a Pillow image, or with `from_file`, `from_base64`, `from_uri` or `from_bytes`.
    Only Pillow images need Pillow.
    """

    def __init__(self, image: PILImage) -> None:
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        self.data = buffer.getvalue()
        self.mime_type = "image/png"

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str | None = None) -> Image:
        """Return the image whose file has the content `data`.

        Raise `ValueError` if `mime_type` is not given and the format is not PNG, JPEG, GIF or WebP.
        """
        image = cls.__new__(cls)
        image.data = data
        image.mime_type = mime_type or _detect_type(data)
        return image

    @classmethod
    def from_pil(cls, pil_image: PILImage) -> Image:
        """Return the Pillow image `pil_image`."""
        return cls(pil_image)

    @classmethod
    def from_file(cls, file_path: str | Path) -> Image:
        """Return the image in the file `file_path`."""
        return cls.from_bytes(Path(file_path).read_bytes())

    @classmethod
    def from_base64(cls, base64_str: str) -> Image:
        """Return the image whose file is `base64_str`. Raise `ValueError` if it is not Base64."""
        try:
            return cls.from_bytes(base64.b64decode(base64_str, validate=True))
        except ValueError as error:
            raise ValueError(f"This is not an image in Base64: {error}") from error

    @classmethod
    def from_uri(cls, uri: str) -> Image:
        """Return the image in the data URI `uri`, such as "data:image/png;base64,…"."""
        match = _DATA_URI.fullmatch(uri)
        if match is None:
            raise ValueError(
                f"{uri[:60]!r} is not a data URI of an image, such as 'data:image/png;base64,…'. "
                "Load other addresses yourself, and pass Image.from_bytes(content)."
            )
        return cls.from_bytes(base64.b64decode(match[2]), match[1])

    @property
    def image(self) -> PILImage:
        """The Pillow image. Raise `ImportError` if Pillow is not installed."""
        from PIL import Image as pillow

        return pillow.open(io.BytesIO(self.data))

    def to_base64(self) -> str:
        """Return the image file in Base64."""
        return base64.b64encode(self.data).decode()

    @property
    def data_uri(self) -> str:
        """The image as a data URI."""
        return f"data:{self.mime_type};base64,{self.to_base64()}"

    def to_openai_format(self, detail: Detail = "auto") -> dict[str, Any]:
        """Return the image as a content part of OpenAI's chat completions interface."""
        return {"type": "image_url", "image_url": {"url": self.data_uri, "detail": detail}}

    def _repr_html_(self) -> str:
        return f'<img src="{html.escape(self.data_uri)}"/>'

    def __repr__(self) -> str:
        return f"<Image {self.mime_type}, {len(self.data)} bytes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        def validate(value: object) -> Image:
            match value:
                case Image():
                    return value
                case {"data": str(text)}:
                    return cls.from_base64(text)
                case _:
                    raise ValueError(f"Expected an Image, not {type(value).__name__}.")

        def serialize(value: Image) -> dict[str, str]:
            return {"data": value.to_base64()}

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(serialize)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}


def _detect_type(data: bytes) -> str:
    for signature, mime_type in _SIGNATURES:
        if data.startswith(signature):
            return mime_type
    raise ValueError("The image is not PNG, JPEG, GIF or WebP. Name its format in mime_type=.")
