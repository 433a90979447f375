"""CassetteChatCompletionClient: record the turns of a model in a file, and replay them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from pydantic import TypeAdapter

from ..components import SavedComponent
from ..errors import CassetteMismatch
from ..tracing import Attributes
from .cassette_file import CassetteFile, RecordedTurn, Rules, difference, masked
from .client import ChatCompletionClient, ModelInfo, with_parameters_of
from .messages import CreateResult, LLMMessage, RequestUsage
from .model_request import ModelRequest
from .recorded import RecordedAnswer, RequestValues, request_values
from .token_estimate import estimate_tokens
from .tool_schema import ToolLike

_CONTEXT_TOKENS = 128_000
_RULES = TypeAdapter(list[tuple[str, str]])


class CassetteChatCompletionClient(ChatCompletionClient):
    """Replay the turns in the file `path`, in order; then record the turns of `client`.

    Without a client, a request for which no turn is recorded raises `CassetteMismatch`. So does
    every request that differs from the recorded one. To record again, delete the file.

    normalize   pairs of a regular expression and a replacement, for text in requests that differs
                from machine to machine, such as `(r"/tmp/\\w+", "/tmp/folder")`. Recorded and new
                requests are compared after replacement

    Whether an answer is streamed makes no difference to a request. Keys of services and arguments
    such as headers are masked in the file. Raise `ValueError` if the file is damaged, or missing
    and there is no client.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        client: ChatCompletionClient | None = None,
        *,
        normalize: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.path = Path(path)
        self.client = client
        self._normalize = list(normalize)
        self._rules = Rules(normalize)
        if client is None and not self.path.exists():
            raise ValueError(f"The cassette {self.path} does not exist. Pass client= to record it.")
        self._file = CassetteFile.read(self.path)
        self._next = 0
        self._usage = RequestUsage(0, 0)

    @property
    def turns_left(self) -> int:
        """The number of recorded turns that were not replayed yet."""
        return len(self._file.turns) - self._next

    @with_parameters_of(ChatCompletionClient.create)
    async def create(self, *arguments: Any, **options: Any) -> CreateResult:
        """Return the next recorded answer, or a new one of the client."""
        asked = ModelRequest(*arguments, **options)
        asked.raise_if_cancelled()
        request = request_values(asked)
        if answer := self._replayed(request):
            return answer.cached_result()
        result = await self._real_client(request).create(*arguments, **options)
        self._record(request, RecordedAnswer(result=result))
        return result

    @with_parameters_of(ChatCompletionClient.create)
    async def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the next recorded answer, or a new one of the client, in pieces and whole."""
        asked = ModelRequest(*arguments, **options)
        asked.raise_if_cancelled()
        request = request_values(asked)
        if answer := self._replayed(request):
            for item in answer.cached_stream():
                asked.raise_if_cancelled()
                yield item
            return
        pieces: list[str] = []
        stream = self._real_client(request).create_stream(*arguments, **options)
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, str):
                    pieces.append(item)
                else:
                    self._record(request, RecordedAnswer(result=item, pieces=pieces))
                yield item

    def _replayed(self, request: RequestValues) -> RecordedAnswer | None:
        """Return the next recorded answer; None if none is left. Raise if the request differs."""
        if not self.turns_left:
            return None
        turn = self._file.turns[self._next]
        where = f"{self.path}, turn {self._next + 1}"
        if diff := difference(turn.request, request, rules=self._rules, recorded_in=where):
            raise CassetteMismatch(
                f"The request differs from the recorded one.\n{diff}\n"
                "Change the code back, pass normalize= for what differs from machine to machine, "
                "or delete the file and record it again with client=."
            )
        self._next += 1
        self._usage += turn.answer.result.usage
        return turn.answer

    def _real_client(self, request: RequestValues) -> ChatCompletionClient:
        if self.client is None:
            diff = difference(None, request, rules=self._rules, recorded_in=str(self.path))
            raise CassetteMismatch(
                f"All {len(self._file.turns)} turns of {self.path} were replayed, and this request "
                f"is one more. Pass client= to record it.\n{diff}"
            )
        return self.client

    def _record(self, request: RequestValues, answer: RecordedAnswer) -> None:
        self._usage += answer.result.usage
        self._file.model_info = dict(self.model_info)
        self._file.turns.append(masked(RecordedTurn(request=request, answer=answer), self._rules))
        self._file.write(self.path)
        self._next = len(self._file.turns)

    async def close(self) -> None:
        """Close the client."""
        if self.client is not None:
            await self.client.close()

    def actual_usage(self) -> RequestUsage:
        """Return the usage of the client; no tokens without one."""
        return RequestUsage(0, 0) if self.client is None else self.client.actual_usage()

    def total_usage(self) -> RequestUsage:
        """Return the tokens of all answers, replayed and new."""
        return self._usage

    def count_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return an estimate that is the same with and without a client."""
        return estimate_tokens(messages, tools)

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[ToolLike] = ()
    ) -> int:
        """Return 128000 less `count_tokens`, with and without a client."""
        return _CONTEXT_TOKENS - estimate_tokens(messages, tools)

    def span_attributes(self, extra: Mapping[str, Any]) -> Attributes:
        """See `ChatCompletionClient`."""
        known = super() if self.client is None else self.client
        return known.span_attributes(extra)

    @property
    def model_info(self) -> ModelInfo:
        """What the client's model can do, or could when it was recorded."""
        if self.client is not None:
            return self.client.model_info
        return cast(ModelInfo, self._file.model_info)

    def _to_config(self) -> dict[str, object]:
        return {
            "path": str(self.path),
            "client": None if self.client is None else self.client.dump_component().to_dict(),
            "normalize": [list(rule) for rule in self._normalize],
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        saved = cast(SavedComponent | None, config.get("client"))
        return cls(
            str(config["path"]),
            None if saved is None else ChatCompletionClient.load_component(saved),
            normalize=_RULES.validate_python(config.get("normalize") or []),
        )
