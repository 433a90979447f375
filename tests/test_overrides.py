"""Overrides in subclasses of executors and agents: they are called, or refused by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    ACADynamicSessionsCodeExecutor,
    CancellationToken,
    CodeBlock,
    CodeExecutor,
    CodeResult,
    CommandLineCodeResult,
    DockerCommandLineCodeExecutor,
    JupyterCodeExecutor,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    sync,
)
from cellblock.agents import CodeExecutorAgent
from cellblock.batch.judge import judge
from cellblock.batch.programs import JudgeLimits, Program
from cellblock.chat import coding
from cellblock.chat.coding import jupyter
from cellblock.models import ReplayChatCompletionClient

pytestmark = pytest.mark.filterwarnings(
    "ignore:Using LocalCommandLineCodeExecutor", "ignore:No approval function"
)
SH = [CodeBlock("echo ran", "sh")]
EXECUTE = "Override execute_code_blocks instead."


def ignore(*_: Any) -> None: ...


UNCALLED = [
    (coding.LocalCommandLineCodeExecutor, "_execute_code_dont_check_setup", EXECUTE),
    (LocalCommandLineCodeExecutor, "_execute_code_dont_check_setup", EXECUTE),
    (SandboxCommandLineCodeExecutor, "_execute_code_dont_check_setup", EXECUTE),
    (DockerCommandLineCodeExecutor, "_execute_command", EXECUTE),
    (sync.DockerCommandLineCodeExecutor, "_execute_command", EXECUTE),
    (LocalCommandLineCodeExecutor, "_setup_functions", "Pass functions= to the constructor."),
    (JupyterCodeExecutor, "_execute_code_block", EXECUTE),
    (jupyter.EmbeddedIPythonCodeExecutor, "_process_code", EXECUTE),
    (jupyter.JupyterCodeExecutor, "_save_image", EXECUTE),
    (ACADynamicSessionsCodeExecutor, "_ensure_access_token", "Pass credential="),
    (LocalCommandLineCodeExecutor, "timeout", "Pass timeout= to the constructor"),
    (coding.LocalCommandLineCodeExecutor, "work_dir", "Pass work_dir= to the constructor"),
    (CodeExecutorAgent, "_extract_markdown_code_blocks", "extract_code_blocks_from_messages"),
]


@pytest.mark.parametrize(("base", "name", "instead"), UNCALLED)
def test_an_override_that_is_never_called_is_refused(base: type, name: str, instead: str) -> None:
    for bases in ((base,), (type("Filter", (), {name: ignore}), base)):
        own = {name: ignore} if len(bases) == 1 else {}
        with pytest.raises(TypeError, match=rf"My\.{name} would be ignored.*{re.escape(instead)}"):
            type("My", bases, own)


def test_helpers_of_a_class_are_no_overrides() -> None:
    class Own(LocalCommandLineCodeExecutor):
        def _log(self) -> None: ...

        def _save_image(self, data: str) -> str:
            return data

        async def execute_code_blocks(self, *arguments: Any, **options: Any) -> Any:
            self._log()
            result = await super().execute_code_blocks(*arguments, **options)
            result.output = "".join([self._save_image(text) for text in [result.output]])
            return result

    assert issubclass(Own, CodeExecutor)


def test_what_only_another_new_method_uses_is_never_called() -> None:
    def describe(executor: Any) -> object:
        return executor._execute_code_dont_check_setup

    filters = {"_execute_code_dont_check_setup": ignore, "describe": describe}
    with pytest.raises(TypeError, match="_execute_code_dont_check_setup would be ignored"):
        type("My", (LocalCommandLineCodeExecutor,), filters)


async def test_a_method_that_is_set_on_a_class_is_an_override(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> CommandLineCodeResult:
        return CommandLineCodeResult(1, "refused")

    monkeypatch.setattr(LocalCommandLineCodeExecutor, "execute_code_blocks", refuse)
    async with LocalCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        await CodeExecutorAgent("a", executor).run(task="```sh\ntouch ran\n```")
        with pytest.raises(ValueError, match="own execute_code_blocks would not be called"):
            await judge(executor, Program(id="1", code="print(1)"), JudgeLimits())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("base", "message"),
    [
        (LocalCommandLineCodeExecutor, "unknown language sh"),
        (SandboxCommandLineCodeExecutor, "unknown language sh"),
        (SandboxSessionCodeExecutor, "unknown language sh"),
        (sync.LocalCommandLineCodeExecutor, "unknown language sh"),
        (coding.LocalCommandLineCodeExecutor, "\nunknown language sh"),
    ],
)
async def test_languages_that_a_subclass_leaves_out_do_not_run(
    base: Callable[..., Any], message: str, tmp_path: Path
) -> None:
    class Python(base):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass] - a parameter
        SUPPORTED_LANGUAGES = ["python"]

    executor: Any = Python(work_dir=tmp_path)
    for code, tag, expected in (("echo ran", "sh", (1, message)), ("print(1)", "py", (0, "1\n"))):
        result: Any = executor.execute_code_blocks([CodeBlock(code, tag)])
        result = await result if inspect.isawaitable(result) else result
        assert (result.exit_code, result.output) == expected
    stopping = executor.stop()
    if inspect.isawaitable(stopping):
        await stopping


def test_policies_of_a_subclass_of_autogen_0_2(tmp_path: Path) -> None:
    class Saving(coding.LocalCommandLineCodeExecutor):
        DEFAULT_EXECUTION_POLICY = {"sh": False, "python": True}

    class Later(coding.LocalCommandLineCodeExecutor):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.execution_policies["sh"] = False

    class Strict(coding.LocalCommandLineCodeExecutor):
        @staticmethod
        def sanitize_command(lang: str, code: str) -> None:
            if "echo" in code:
                raise ValueError("no echo")

    for kind, words, ran in ((Saving, "Code saved to", 2), (Later, "Code saved to", 2)):
        executor = kind(work_dir=tmp_path)
        result = executor.execute_code_blocks([*SH, CodeBlock("print(2)", "python")])
        assert words in result.output
        assert result.output.endswith(f"\n{ran}\n")
        assert "\nran" not in result.output
        executor.stop()
    result = Strict(work_dir=tmp_path).execute_code_blocks(SH)
    assert (result.exit_code, result.output) == (1, "no echo")


class Refusing(LocalCommandLineCodeExecutor):
    """Refuses all code, as filters of public programs do."""

    async def execute_code_blocks(self, *_: Any, **options: Any) -> Any:
        return CommandLineCodeResult(1, "refused")


class RefusingAgent(CodeExecutorAgent):
    """Refuses all code in the method that AutoGen's agent runs it with."""

    async def execute_code_block(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        return CodeResult(1, "refused")


@pytest.mark.parametrize("has_model", [False, True])
@pytest.mark.parametrize("kind", ["executor", "agent"])
async def test_agents_run_code_by_the_override(kind: str, has_model: bool, tmp_path: Path) -> None:
    executor = Refusing if kind == "executor" else LocalCommandLineCodeExecutor
    agent = RefusingAgent if kind == "agent" else CodeExecutorAgent
    answers = ["```sh\ntouch ran\n```", "done"]
    model = ReplayChatCompletionClient(answers) if has_model else None
    async with executor(work_dir=tmp_path) as running:
        result = await agent("coder", running, model_client=model).run(task="```sh\ntouch ran\n```")
    assert list(tmp_path.iterdir()) == []
    assert any("refused" in message.to_text() for message in result.messages)
