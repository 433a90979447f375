"""What the examples about agents share: where code runs, and which model answers.

    --docker [IMAGE]   run code in a container instead of the sandbox
    --model NAME       ask a model of OpenAI, with the key in OPENAI_API_KEY

Without --model, an example replays the conversation in `cassettes/`. Its answers were written by
hand, those of the model and those of the person; the code in them really runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock import DockerCommandLineCodeExecutor, SandboxCommandLineCodeExecutor, sync
from cellblock.chat import IOConsole, IOStream
from cellblock.models import (
    CassetteChatCompletionClient,
    ChatCompletionClient,
    OpenAIChatCompletionClient,
)

CASSETTES = Path(__file__).parent / "cassettes"
# Each run of a block has a file name of its own, which tracebacks show to the model.
FILE_NAMES = [(r"tmp_code_\w+", "tmp_code")]


@dataclass(frozen=True)
class Settings:
    """The options of the command line. `example` is the name of the cassette."""

    example: str
    docker: str | None = None
    model: str | None = None

    def executor(
        self, functions: Sequence[Callable[..., Any]] = ()
    ) -> SandboxCommandLineCodeExecutor | DockerCommandLineCodeExecutor:
        """Return what runs the code. Blocks can import `functions`."""
        if self.docker is None:
            return SandboxCommandLineCodeExecutor(functions=functions)
        return DockerCommandLineCodeExecutor(self.docker, functions=functions)

    def sync_executor(
        self,
    ) -> sync.SandboxCommandLineCodeExecutor | sync.DockerCommandLineCodeExecutor:
        """Return what runs the code of a chat."""
        if self.docker is None:
            return sync.SandboxCommandLineCodeExecutor()
        return sync.DockerCommandLineCodeExecutor(self.docker)

    def llm_config(self) -> dict[str, Any]:
        """Return the model of a chat agent."""
        return {"config_list": [{"model_client": self.model_client()}]}

    def person(self, answers: Sequence[str]) -> IOStream:
        """Return where a chat asks: the terminal if a model is asked, else a list of answers."""
        return IOConsole() if self.model is not None else ScriptedPerson(answers)

    def model_client(self) -> ChatCompletionClient:
        """Return the model, or the recorded conversation."""
        if self.model is None:
            path = CASSETTES / f"{self.example}.json"
            return CassetteChatCompletionClient(path, normalize=FILE_NAMES)
        return OpenAIChatCompletionClient(model=self.model)


class ScriptedPerson(IOConsole):
    """A person whose answers were written before. They are shown as if they were typed."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = iter(answers)

    def input(self, prompt: str = "", *, password: bool = False) -> str:
        """Return the next answer. Raise `EOFError` if there are no more."""
        answer = next(self._answers, None)
        if answer is None:
            raise EOFError("There is no scripted answer left.")
        self.print(prompt + answer)
        return answer


def read_settings(example: str, description: str | None) -> Settings:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--docker",
        nargs="?",
        const="python:3-slim",
        metavar="IMAGE",
        help="run code in a container",
    )
    parser.add_argument("--model", metavar="NAME", help="ask a model of OpenAI")
    options = parser.parse_args()
    return Settings(example, options.docker, options.model)
