"""The client of OpenAI: what it sends to a server, and what it makes of the answers."""

import http.server
import json
import threading
from collections.abc import AsyncGenerator
from typing import Any

from pydantic import BaseModel

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNg+M8AAAICAQB7CYF4AAAAAElFTkSuQmCC"
)
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
CALLS = [
    {"id": f"c{n}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    for n in (1, 2)
]


class Plan(BaseModel):
    text: str


class Service(http.server.ThreadingHTTPServer):
    """Keeps the requests, and sends the answers of a list."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[Any] = []
        self.answers: list[Any] = []


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with JSON, or with a stream if the answer is a list."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Service)
        size = int(self.headers["content-length"])
        self.server.requests.append(json.loads(self.rfile.read(size)))
        answer = self.server.answers.pop(0)
        if isinstance(answer, dict):
            kind, body = "application/json", json.dumps(answer)
        else:
            kind = "text/event-stream"
            body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in answer)
            body += "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answer(finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "logprobs": None,
        "message": {"role": "assistant", "content": None, **message},
    }
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-4o"} | {
        "choices": [choice],
        "usage": USAGE,
    }


def chunks(*deltas: dict[str, Any], finish_reason: str = "stop") -> list[dict[str, Any]]:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    usage = {**head, "choices": [], "usage": USAGE}
    return [*({**head, "choices": [choice]} for choice in choices), usage]


def conversation(lib: Any) -> list[Any]:
    call = lib.FunctionCall(id="c0", name="weather", arguments='{"city":"Rome"}')
    result = lib.FunctionExecutionResult(
        content="rain", name="weather", call_id="c0", is_error=False
    )
    return [
        lib.SystemMessage(content="Be kind."),
        lib.UserMessage(content="Hi", source="user"),
        lib.AssistantMessage(content=[call], thought="I look.", source="bot"),
        lib.FunctionExecutionResultMessage(content=[result]),
        lib.AssistantMessage(content="Rain.", thought="not sent", source="bot"),
        lib.UserMessage(content=["Look", lib.Image.from_base64(PICTURE)], source="ann"),
    ]


async def run(lib: Any) -> AsyncGenerator[Any, None]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        try:
            async for item in use(lib, service):
                yield item
        finally:
            service.shutdown()


async def use(lib: Any, service: Service) -> AsyncGenerator[Any, None]:
    url = f"http://127.0.0.1:{service.server_port}/v1"
    settings: dict[str, Any] = {"model": "gpt-4o", "api_key": "k", "base_url": url}
    client = lib.OpenAIChatCompletionClient(**settings, temperature=0.5, stop=["END"], seed=1)
    tool = {"name": "weather", "description": "Get it.", "parameters": {"type": "object"}}
    requests: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, answer(content="Hey")),
        ({"tools": [tool], "tool_choice": "required"}, answer("tool_calls", tool_calls=CALLS)),
        ({"tools": [tool]}, answer("stop", content="I call.", tool_calls=CALLS)),
        ({"json_output": True}, answer(content='{"a": 1}')),
        ({"json_output": False}, answer("length", content="He")),
        ({"json_output": Plan}, answer(content='{"text": "go"}')),
        ({"extra_create_args": {"seed": 2}}, answer("content_filter", content="")),
        ({}, answer(content="Hey", reasoning_content="Hm.")),
    ]
    for arguments, reply in requests:
        service.answers.append(reply)
        yield await client.create(conversation(lib), **arguments)
        yield dict(sorted(service.requests.pop().items()))
    async for item in use_streams(lib, service, client, tool):
        yield item
    yield client.total_usage()
    prefixed = lib.OpenAIChatCompletionClient(
        **settings, add_name_prefixes=True, include_name_in_message=False
    )
    service.answers.append(answer(content="Hey"))
    yield await prefixed.create(conversation(lib))
    yield service.requests.pop()["messages"]
    yield prefixed.model_info


async def use_streams(
    lib: Any, service: Service, client: Any, tool: Any
) -> AsyncGenerator[Any, None]:
    options = {"extra_create_args": {"stream_options": {"include_usage": True}}}
    pieces = [
        {"index": 0, **CALLS[0]},
        {"index": 0, "function": {"arguments": ""}},
        {"index": 1, **CALLS[1]},
    ]
    streams: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (options, chunks({"content": "He"}, {"content": "y"})),
        (
            {**options, "tools": [tool]},
            chunks(*({"tool_calls": [piece]} for piece in pieces), finish_reason="tool_calls"),
        ),
        (options, chunks({"reasoning_content": "Hm"}, {"content": "Hey"})),
    ]
    for arguments, reply in streams:
        service.answers.append(reply)
        async for item in client.create_stream(conversation(lib)[:2], **arguments):
            yield item
        yield dict(sorted(service.requests.pop().items()))
