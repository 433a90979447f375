"""Agents that run the code in messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cellblock
from cellblock import CodeBlock, CodeResult, sync
from cellblock.chat import ConversableAgent
from cellblock.chat.coding import LocalCommandLineCodeExecutor
from tests.chat.console import console

pytestmark = pytest.mark.usefixtures("kept_servers")

FENCE = "```"
SUCCESS = "exitcode: 0 (execution succeeded)\nCode output: "
FAILURE = "exitcode: {} (execution failed)\nCode output: "


def fenced(tag: str, code: str) -> str:
    return f"{FENCE}{tag}\n{code}\n{FENCE}\n"


HELLO = fenced("python", "print('hi')")


def agent(config: Any, kind: type[ConversableAgent] = ConversableAgent) -> ConversableAgent:
    return kind("a", llm_config=False, human_input_mode="NEVER", code_execution_config=config)


def in_sandbox(folder: Path, **options: Any) -> ConversableAgent:
    """Return an agent with the dict form of `code_execution_config`."""
    return agent({"use_docker": False, "work_dir": str(folder), **options})


def messages(*contents: str, roles: str = "") -> list[dict[str, Any]]:
    """Return messages of the user; "a" in `roles` makes one the assistant's."""
    names = {"a": "assistant", "u": "user"}
    return [
        {"role": names[role], "content": content}
        for role, content in zip(roles or "u" * len(contents), contents, strict=True)
    ]


def reply_and_print(one: ConversableAgent, *contents: str, roles: str = "") -> tuple[Any, str]:
    with console() as stream:
        reply = one.generate_reply(messages(*contents, roles=roles))
    return reply, stream.text


BLANK = fenced("python", " ")
THOUGHT = f"<think>\n{HELLO}</think>\nNo."

# the dict form


@pytest.mark.parametrize("sandbox", [True, False])
def test_output_before_the_time_limit_is_kept(tmp_path: Path, sandbox: bool) -> None:
    code = "import time; print('a', flush=True); time.sleep(30)"
    one = in_sandbox(tmp_path, timeout=2, sandbox=sandbox)
    assert reply_and_print(one, fenced("python", code))[0] == f"{FAILURE.format(1)}\na\n\nTimeout"


def test_the_home_folder_is_refused_as_work_folder_unless_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(ValueError, match="your home folder.*allow_home: True"):
        in_sandbox(home)
    for above in (tmp_path, Path("/")):
        with pytest.raises(ValueError, match="Use a separate folder for the code"):
            in_sandbox(above, allow_home=True)
    assert reply_and_print(in_sandbox(home, allow_home=True), HELLO)[0] == f"{SUCCESS}\nhi\n"
    in_sandbox(home, sandbox=False)
    in_sandbox(home / "coding")


def test_sandbox_false_runs_on_this_machine(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd())"
    plain = in_sandbox(tmp_path, sandbox=False)
    assert reply_and_print(plain, fenced("python", code))[0] == f"{SUCCESS}\n{tmp_path}\n"
    contained = in_sandbox(tmp_path)
    assert reply_and_print(contained, fenced("python", code))[0] == f"{SUCCESS}\n/workspace\n"


def test_an_unknown_entry_of_the_config_is_named() -> None:
    with pytest.raises(TypeError, match="code_execution_config: work_directory"):
        agent({"use_docker": False, "work_directory": "x"})
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not 'x'"):
        agent({"use_docker": False, "timeout": "x"})


def test_run_code_can_be_called_directly(tmp_path: Path) -> None:
    one = in_sandbox(tmp_path)
    assert one.run_code("print(1)", use_docker=False) == (0, "1\n", None)
    assert one.execute_code_blocks([("python", "print(1)"), ("sh", "echo 2")]) == (0, "\n1\n\n2\n")
    with pytest.raises(ValueError, match="No code blocks to execute"):
        one.execute_code_blocks([])


# which blocks


@pytest.mark.parametrize("form", ["dict", "executor"])
@pytest.mark.parametrize(
    "text",
    [
        HELLO,
        f"Run: {HELLO}",
        f"{FENCE}python\nprint('hi'){FENCE}",
        f"    {FENCE}python\n    print('hi')\n    {FENCE}\n",
        f"~~~python\nprint('hi')\n~~~\n{FENCE}python\n{FENCE}",
        f"{FENCE}{FENCE}python\nprint('hi')\n{FENCE}{FENCE}\n",
        f"<think>\n{HELLO}</think>{HELLO}",
    ],
)
def test_both_forms_of_the_config_run_the_same_blocks(form: str, text: str, tmp_path: Path) -> None:
    where = {"executor": sync.SandboxCommandLineCodeExecutor()}
    one = in_sandbox(tmp_path) if form == "dict" else agent(where)
    assert reply_and_print(one, text)[0].split() == f"{SUCCESS} hi".split()


@pytest.mark.parametrize("form", ["dict", "executor", "session"])
def test_a_message_without_code_to_run_is_no_success(form: str, tmp_path: Path) -> None:
    executors: dict[str, Any] = {
        "executor": sync.SandboxCommandLineCodeExecutor,
        "session": sync.SandboxSessionCodeExecutor,
    }
    one = in_sandbox(tmp_path) if form == "dict" else agent({"executor": executors[form]()})
    reply, _ = reply_and_print(one, fenced("text", "hello") + fenced("json", "{}"))
    language = "text" if form == "dict" else "json"
    assert reply == f"{FAILURE.format(1)}\nunknown language {language}"


def test_what_is_no_code_is_left_out_beside_code_and_may_be_saved(tmp_path: Path) -> None:
    one = agent({"executor": sync.SandboxCommandLineCodeExecutor(work_dir=tmp_path)})
    assert reply_and_print(one, HELLO + fenced("json", "{}"))[0] == f"{SUCCESS}hi\n"
    saved = fenced("json", "# filename: a.json\n{}")
    assert reply_and_print(one, saved)[0].startswith("exitcode: 0")
    assert (tmp_path / "a.json").exists()


# which messages


def test_the_newest_message_with_code_is_the_one_that_runs() -> None:
    one = agent({"executor": sync.SandboxCommandLineCodeExecutor()})
    newest = fenced("python", "print('new')")
    assert reply_and_print(one, HELLO, newest, "thanks")[0] == f"{SUCCESS}new\n"


@pytest.mark.parametrize("content", [None, "", "hello", [], f"{FENCE}\n{FENCE}", BLANK, THOUGHT])
@pytest.mark.parametrize(
    "config", [{"use_docker": False}, {"executor": LocalCommandLineCodeExecutor()}]
)
def test_without_code_nothing_runs(content: Any, config: Any) -> None:
    one = agent(config)
    message = {"role": "user", "content": content}
    assert one.generate_code_execution_reply([message]) == (False, None)
    assert one.generate_code_execution_reply([{"role": "user"}]) == (False, None)
    assert one.generate_code_execution_reply([]) == (False, None)


def test_code_is_not_run_where_it_is_off() -> None:
    one = agent(False)
    assert one.generate_code_execution_reply(messages(HELLO)) == (False, None)
    assert one.generate_reply(messages(HELLO)) == ""
    assert (one.code_executor, one.use_docker) == (None, None)


# executors


class OwnExecutor:
    """What a user may write: three methods, and results of its own."""

    @property
    def code_extractor(self) -> Any:
        return cellblock.MarkdownCodeExtractor()

    def execute_code_blocks(self, code_blocks: list[CodeBlock]) -> CodeResult:
        return CodeResult(exit_code=0, output=",".join(block.code for block in code_blocks))

    def restart(self) -> None: ...


class OwnAsyncExecutor:
    """An asynchronous one, as AutoGen 0.7 has them."""

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: cellblock.CancellationToken
    ) -> CodeResult:
        await asyncio.sleep(0)
        return CodeResult(exit_code=0, output=code_blocks[0].code)


EXECUTORS: list[Callable[[], Any]] = [
    cellblock.SandboxCommandLineCodeExecutor,
    cellblock.SandboxSessionCodeExecutor,
    sync.SandboxCommandLineCodeExecutor,
    sync.SandboxSessionCodeExecutor,
]


@pytest.mark.parametrize("make", EXECUTORS)
def test_every_executor_works_in_both_kinds_of_chats(make: Callable[[], Any]) -> None:
    executor = make()
    one = agent({"executor": executor})
    try:
        reply, printed = reply_and_print(one, HELLO)
        assert reply == f"{SUCCESS}hi\n"
        assert printed == "\n>>>>>>>> EXECUTING CODE BLOCK (inferred language is python)...\n"
        assert asyncio.run(one.a_generate_reply(messages(HELLO))) == f"{SUCCESS}hi\n"
        assert one.code_executor is executor
    finally:
        stopped = executor.stop()
        if stopped is not None:
            asyncio.run(stopped)


@pytest.mark.parametrize("executor", [OwnExecutor(), OwnAsyncExecutor()])
def test_an_executor_of_the_user_works_in_both_kinds_of_chats(executor: Any) -> None:
    one = agent({"executor": executor})
    assert reply_and_print(one, HELLO)[0] == f"{SUCCESS}print('hi')"
    assert asyncio.run(one.a_generate_reply(messages(HELLO))) == f"{SUCCESS}print('hi')"


def test_pictures_of_a_session_are_named_in_the_reply(tmp_path: Path) -> None:
    code = "class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nprint('see')\nP()"
    with sync.SandboxSessionCodeExecutor(work_dir=tmp_path) as executor:
        reply, _ = reply_and_print(agent({"executor": executor}), fenced("python", code))
    assert reply.startswith(f"{SUCCESS}see\n")
    assert reply.splitlines()[-1].startswith("Image data saved to /")


CONFIGS: list[Callable[[Path], Any]] = [
    lambda folder: {"use_docker": False, "work_dir": str(folder)},
    lambda folder: {"executor": sync.SandboxCommandLineCodeExecutor(work_dir=folder)},
    lambda folder: {"executor": cellblock.SandboxCommandLineCodeExecutor(work_dir=folder)},
]


async def _wait_for_file(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("config", CONFIGS)
def test_code_does_not_block_the_event_loop(config: Callable[[Path], Any], tmp_path: Path) -> None:
    code = "import os, time\nopen('started', 'w').close()\n"
    code += "while not os.path.exists('go'): time.sleep(0.01)"

    async def main() -> Any:
        reply = agent(config(tmp_path)).a_generate_reply(messages(fenced("python", code)))
        task = asyncio.create_task(reply)
        await _wait_for_file(tmp_path / "started")
        (tmp_path / "go").touch()
        return await task

    assert asyncio.run(main()).startswith(SUCCESS)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_cancelled_chat_kills_its_code(config: Callable[[Path], Any], tmp_path: Path) -> None:
    one = agent(config(tmp_path))
    code = "import signal\nopen('started', 'w').close()\nsignal.pause()"

    async def main() -> None:
        task = asyncio.create_task(one.a_generate_reply(messages(fenced("python", code))))
        await _wait_for_file(tmp_path / "started")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert one.generate_reply(messages(HELLO)).endswith("hi\n")  # type: ignore[union-attr]


# the configuration


def test_an_executor_can_be_named(tmp_path: Path) -> None:
    config = {"executor": "commandline-local", "commandline-local": {"work_dir": tmp_path}}
    one = agent(config)
    assert isinstance(one.code_executor, LocalCommandLineCodeExecutor)
    assert reply_and_print(one, HELLO)[0] == f"{SUCCESS}hi\n"
