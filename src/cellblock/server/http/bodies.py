"""Read request bodies, with limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from ..refusals import InvalidRequest, RequestTimedOut, TooLarge

ModelT = TypeVar("ModelT", bound=BaseModel)


async def body_chunks(request: Request, max_bytes: int) -> AsyncGenerator[bytes]:
    """Yield the body. Raise `TooLarge`.

    Raise `RequestTimedOut` if the client sends nothing for the `stall_seconds` of the application,
    and `InvalidRequest` if it ends the connection.
    """
    seconds: float = request.app.state.stall_seconds
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise TooLarge(f"The body has {announced} bytes. At most {max_bytes} are accepted.")
    size, chunks = 0, aiter(request.stream())
    try:
        while True:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            size += len(chunk)
            if size > max_bytes:
                raise TooLarge(f"The body is too large. At most {max_bytes} bytes are accepted.")
            if chunk:
                yield chunk
    except TimeoutError as error:
        raise RequestTimedOut(
            f"Nothing of the body arrived for {seconds:g} s. Send it again."
        ) from error
    except ClientDisconnect as error:
        raise InvalidRequest("The connection ended before the body was complete.") from error


async def read_json(request: Request, model: type[ModelT], max_bytes: int) -> ModelT:
    """Return the JSON body as `model`. Raise `InvalidRequest` and `TooLarge`."""
    body = b"".join([chunk async for chunk in body_chunks(request, max_bytes)])
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidRequest(describe_invalid(error)) from None


def describe_invalid(error: ValidationError) -> str:
    """Return which field of a request is not valid, and why."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    where = f"The field {field!r}" if field else "The body"
    return f"{where} is not valid: {first['msg']}."
