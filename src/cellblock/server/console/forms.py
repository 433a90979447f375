"""Read the forms that browsers send."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ..http.bodies import body_chunks, describe_invalid
from ..refusals import InvalidRequest

ModelT = TypeVar("ModelT", bound=BaseModel)
_MAX_FIELDS = 20


async def read_form(request: Request, max_bytes: int) -> dict[str, str]:
    """Return the fields of a form, with line breaks as in files.

    Raise `InvalidRequest` and `TooLarge`.
    """
    body = b"".join([chunk async for chunk in body_chunks(request, max_bytes)])
    try:
        fields = parse_qsl(
            body.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:
        raise InvalidRequest("The form has too many fields. Open the page again.") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def to_model(model: type[ModelT], **fields: Any) -> ModelT:
    """Return the fields of a form as a request of the REST door. Raise `InvalidRequest`."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise InvalidRequest(describe_invalid(error)) from None
