"""ModelClient: what an OpenAIWrapper asks; and the one that asks a client of `cellblock.models`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, cast

from pydantic import BaseModel

from ...aio.background_loop import background_loop
from ...models.client import ChatCompletionClient, JsonOutput, ToolChoice
from ...models.messages import CreateResult, LLMMessage
from ...models.tool_schema import ToolSchema
from ..io import IOStream
from ..steps import Step, Steps, asynchronous, synchronous
from .chat_completion import ChatCompletion, ChatCompletionMessage
from .config_keys import CONTROL_KEYS, Parameters
from .message_conversion import to_completion, to_messages, to_tool_choice, to_tools
from .prices import price_of

_READ_KEYS = frozenset(
    {
        "function_call",
        "functions",
        "messages",
        "n",
        "stream",
        "tool_choice",
        "tools",
    }
)
_GREEN, _PLAIN = "\033[32m", "\033[0m\n"


class ModelClient(Protocol):
    """The interface of your own model client. See `ConversableAgent.register_model_client`.

    It is created with the entry of `config_list` whose `model_client_cls` is the name of the class.
    """

    RESPONSE_USAGE_KEYS: ClassVar[list[str]] = [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "cost",
        "model",
    ]

    def create(self, params: Parameters) -> Any:
        """Return the answer to `params["messages"]`: an object with `choices` and `model`."""
        ...

    def message_retrieval(self, response: Any) -> list[Any]:
        """Return the texts of `response`; the messages, if they call tools."""
        ...

    def cost(self, response: Any) -> float:
        """Return what `response` cost, in US dollars."""
        ...

    @staticmethod
    def get_usage(response: Any) -> dict[str, Any]:
        """Return a dict with the keys `RESPONSE_USAGE_KEYS`, or an empty one."""
        ...


@dataclass(frozen=True)
class _ModelCall:
    """The parameters of a request, as a client of `cellblock.models` takes them.

    count   how many alternative answers are wanted; each is a separate request
    """

    model: str
    messages: list[LLMMessage]
    tools: Sequence[ToolSchema]
    tool_choice: ToolChoice
    json_output: JsonOutput
    extra: dict[str, Any]
    count: int
    old_style: bool
    stream: bool

    @classmethod
    def of(cls, params: Mapping[str, Any], model: str) -> _ModelCall:
        """Return the request with the parameters `params` to a client of the model `model`."""
        if "messages" not in params:
            raise ValueError("The completions interface (prompt=) is not offered. Pass messages=.")
        functions = cast(list[dict[str, Any]], params.get("functions") or [])
        tools = to_tools(params.get("tools") or [{"function": item} for item in functions])
        choice = params.get("tool_choice") or params.get("function_call")
        return cls(
            model=str(params.get("model") or model),
            messages=to_messages(params["messages"]),
            tools=tools,
            tool_choice=to_tool_choice(choice, tools) if tools else "auto",
            json_output=_output_class(params),
            extra=_other_parameters(params, model),
            count=params.get("n") or 1,
            old_style=bool(functions),
            stream=bool(params.get("stream")),
        )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `ChatCompletionClient.create`."""
        return {
            "messages": self.messages,
            "tools": self.tools,
            "tool_choice": self.tool_choice,
            "json_output": self.json_output,
            "extra_create_args": self.extra,
        }


def _output_class(params: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return the class whose JSON the answer must be, or None."""
    form: Any = params.get("response_format")
    is_class = isinstance(form, type) and issubclass(cast(type[Any], form), BaseModel)
    return cast(type[BaseModel], form) if is_class else None


def _other_parameters(params: Mapping[str, Any], model: str) -> Parameters:
    """Return the parameters that only the service knows; its model, if it is not `model`."""
    read = _READ_KEYS | CONTROL_KEYS
    if params.get("model") == model:
        read |= {"model"}
    if params.get("response_format") is None or _output_class(params):
        read |= {"response_format"}
    return {name: value for name, value in params.items() if name not in read}


class ChatModelClient(ModelClient):
    """A `ModelClient` that asks a client of `cellblock.models`.

    The client works on the background loop, so that synchronous and asynchronous chats can share
    its connections. With `stream=True` the answer is printed while it arrives.
    """

    def __init__(
        self, client: ChatCompletionClient, model: str, *, expects_price: bool = True
    ) -> None:
        self.client = client
        self._model = model
        self._expects_price = expects_price

    @synchronous
    def create(self, params: Parameters) -> Steps[ChatCompletion]:
        """Return the model's answer. Raise `ModelError`, and `ValueError` for bad parameters."""
        request = _ModelCall.of(params, self._model)
        if not request.model:
            raise ValueError("The entry of config_list has no model. Add 'model': NAME to it.")
        ask = Step(self._ask, self._a_ask)
        if request.stream:
            ask = Step(self._print_stream, self._a_print_stream)
        results: list[CreateResult] = []
        for _ in range(request.count):
            results.append((yield from ask(request)))
        return to_completion(results, request.model, old_style=request.old_style)

    a_create = asynchronous(create)

    def _ask(self, request: _ModelCall) -> CreateResult:
        return background_loop().run(self.client.create(**request.arguments()))

    async def _a_ask(self, request: _ModelCall) -> CreateResult:
        return await background_loop().call(self.client.create(**request.arguments()))

    def _print_stream(self, request: _ModelCall) -> CreateResult:
        stream = self.client.create_stream(**request.arguments())
        with _PrintedStream() as printed:
            for item in background_loop().iterate(stream):
                printed.add(item)
        return printed.result()

    async def _a_print_stream(self, request: _ModelCall) -> CreateResult:
        stream = self.client.create_stream(**request.arguments())
        with _PrintedStream() as printed:
            async for item in background_loop().stream(stream):
                printed.add(item)
        return printed.result()

    def message_retrieval(self, response: ChatCompletion) -> list[str | ChatCompletionMessage]:
        """Return the text of `response`; the message, if it calls tools."""
        messages = [choice.message for choice in response.choices]
        return [
            message if message.tool_calls or message.function_call else cast(Any, message.content)
            for message in messages
        ]

    def cost(self, response: ChatCompletion) -> float:
        """Return what `response` cost according to the list of prices; 0 without a price."""
        price = price_of(response.model, is_expected=self._expects_price)
        return price.cost(response.usage.prompt_tokens, response.usage.completion_tokens)

    @staticmethod
    def get_usage(response: ChatCompletion) -> dict[str, Any]:
        """Return the tokens, the cost and the model."""
        return {**response.usage.model_dump(), "cost": response.cost, "model": response.model}


class _PrintedStream:
    """Prints the pieces of an answer in green, and keeps the whole answer."""

    def __init__(self) -> None:
        self._stream = IOStream.get_default()
        self._result: CreateResult | None = None

    def __enter__(self) -> Self:
        self._stream.print(_GREEN, end="")
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.print(_PLAIN)

    def add(self, item: str | CreateResult) -> None:
        if isinstance(item, str):
            self._stream.print(item, end="", flush=True)
        else:
            self._result = item

    def result(self) -> CreateResult:
        if self._result is None:
            raise ValueError("The model client ended its stream without a CreateResult.")
        return self._result
