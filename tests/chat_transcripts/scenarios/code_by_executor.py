"""Code that runs with an executor."""

import asyncio
import re

from scripted import outcome, scripted


def run(lib):
    executor = lib.LocalCommandLineCodeExecutor(work_dir=".", timeout=2)
    yield executor.timeout, str(executor.work_dir), executor.functions_module
    yield isinstance(executor, lib.CodeExecutor)
    yield from chat(lib, executor)
    yield from replies(lib, executor)
    yield from results(lib, executor)
    yield from functions(lib)
    yield outcome(lib.LocalCommandLineCodeExecutor, timeout=0)
    yield outcome(lib.LocalCommandLineCodeExecutor, functions_module="a b")
    executor.restart()


def fenced(tag, code):
    return f"```{tag}\n{code}\n```\n"


HELLO = fenced("python", "print('hello')")


def user_with(lib, executor, **config):
    return lib.ConversableAgent(
        "user",
        human_input_mode="NEVER",
        llm_config=False,
        code_execution_config={"executor": executor, **config},
    )


def chat(lib, executor):
    user = user_with(lib, executor)
    write = "# filename: fib.py\ndef f(n): return n if n < 2 else f(n-1) + f(n-2)"
    use = fenced("python", "from fib import f\nprint(f(14))") + fenced("sh", "echo done")
    assistant = scripted(lib, "assistant", fenced("python", write), use, "Thanks.")
    yield user.initiate_chat(assistant, message="What is Fibonacci's 14th number?")
    again = scripted(lib, "again", HELLO)
    yield asyncio.run(user.a_initiate_chat(again, message="Go.", max_turns=2))
    yield user.use_docker, user.code_executor is executor


def replies(lib, executor):
    user = user_with(lib, executor)
    for text in (
        HELLO + fenced("", "print('there')") + fenced("sh", "echo you; exit 4") + HELLO,
        fenced("ruby", "puts 1"),
        fenced("python", "import time; time.sleep(10)"),
        "no code",
    ):
        yield user.generate_reply(messages=[{"role": "user", "content": text}])
    old = [{"role": "user", "content": HELLO}, {"role": "assistant", "content": "ok"}]
    yield user.generate_reply(messages=[*old, {"role": "user", "content": "no code"}])
    wide = user_with(lib, executor, last_n_messages=3)
    yield wide.generate_reply(messages=[*old, {"role": "user", "content": "no code"}])
    wrong = user_with(lib, executor, last_n_messages=-1)
    yield outcome(wrong.generate_reply, messages=old)


def results(lib, executor):
    for blocks in (
        [("python", "print(1)"), ("sh", "echo 2")],
        [("sh", "echo 1"), ("zz", "2"), ("sh", "echo 3")],
        [("html", "<b>"), ("css", "b {}"), ("javascript", "x")],
        [("python", "# filename: named.py\nprint(1)")],
        [("python", "# filename: ../outside.py\nprint(1)")],
        [("sh", "exit 5"), ("sh", "echo never")],
    ):
        made = [lib.CodeBlock(code=code, language=language) for language, code in blocks]
        result = executor.execute_code_blocks(made)
        yield result.exit_code, re.sub(r"/\S*/tmp_code_\w+\.\w+", "FILE", result.output)
        yield result.code_file and re.sub(r".*/(tmp_code_)?\w+", "FILE", result.code_file)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def functions(lib):
    executor = lib.LocalCommandLineCodeExecutor(work_dir=".", functions=[add])
    yield executor.format_functions_for_prompt()
    code = "from functions import add\nprint(add(1, 2))"
    yield executor.execute_code_blocks([lib.CodeBlock(code=code, language="python")]).output
