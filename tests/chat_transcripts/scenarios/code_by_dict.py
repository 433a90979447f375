"""Code that runs where the dict form of `code_execution_config` says."""

import asyncio

from scripted import outcome, scripted


def run(lib):
    yield from chat(lib)
    yield from replies(lib)
    yield from widths(lib)
    yield from overridden(lib)
    yield from configs(lib)


def fenced(tag, code):
    return f"```{tag}\n{code}\n```\n"


HELLO = fenced("python", "print('hello')")


def runner(lib, kind=None, **config):
    settings = {"use_docker": False, "work_dir": "coding", **config}
    make = kind or lib.ConversableAgent
    return make("user", human_input_mode="NEVER", llm_config=False, code_execution_config=settings)


def chat(lib):
    user = runner(lib)
    write = "# filename: fib.py\ndef f(n): return n if n < 2 else f(n-1) + f(n-2)"
    steps = (
        "I write a module.\n" + fenced("python", write),
        "I use it.\n" + fenced("py", "from fib import f\nprint(f(14))") + fenced("sh", "ls f*"),
        fenced("python", "print('before')\nimport missing_module_of_this_test"),
        "Thanks.",
    )
    assistant = scripted(lib, "assistant", *steps)
    yield user.initiate_chat(assistant, message="What is Fibonacci's 14th number?")
    yield assistant.chat_messages
    again = scripted(lib, "again", HELLO)
    yield asyncio.run(user.a_initiate_chat(again, message="Go.", max_turns=2))


def replies(lib):
    user = runner(lib, timeout=2)
    for text in (
        HELLO + "and\n" + fenced("", "print('there')") + fenced("sh", "echo you"),
        fenced("sh", "echo out; echo err >&2; exit 3") + HELLO,
        fenced("sh", "exit 3"),
        fenced("python", "import time; time.sleep(10)"),
        fenced("python", "import time; print('a', flush=True); time.sleep(10)"),
        fenced("python", "print((") + HELLO,
        HELLO + fenced("ruby", "puts 1") + HELLO,
        fenced("", "no language at all"),
        fenced("json", "{}"),
        "no code",
        "",
    ):
        yield user.generate_reply(messages=[{"role": "user", "content": text}])
    parts = [{"type": "text", "text": HELLO}]
    yield user.generate_reply(messages=[{"role": "user", "content": parts}])


def widths(lib):
    for roles in ("u", "ua", "uau", "uu"):
        for width in ("auto", 0, 1, 2, 9, -1, "all", None):
            names = {"u": "user", "a": "assistant"}
            messages = [{"role": names[role], "content": "nothing"} for role in roles]
            messages[0]["content"] = HELLO
            user = runner(lib, last_n_messages=width)
            yield roles, width, outcome(user.generate_code_execution_reply, messages)


def overridden(lib):
    class Recorder(lib.ConversableAgent):
        def run_code(self, code, **kwargs):
            print("run_code", repr(code), sorted(kwargs.items(), key=str))
            return 0, "done", "an-image"

    config = {"use_docker": False, "work_dir": "coding", "timeout": 7, "last_n_messages": 2}
    user = Recorder("user", human_input_mode="NEVER", code_execution_config=config)
    text = HELLO + fenced("sh", "ls") + fenced("py", "# filename: x.py \n1")
    yield user.generate_reply(messages=[{"role": "user", "content": text}])
    yield user.use_docker, config

    class Whole(lib.ConversableAgent):
        def execute_code_blocks(self, code_blocks):
            print("execute_code_blocks", code_blocks)
            return 1, "refused"

    yield runner(lib, Whole).generate_reply(messages=[{"role": "user", "content": HELLO}])


def configs(lib):
    for config in (False, None, {}, {"use_docker": False}, {"use_docker": None}, True, []):
        agent = outcome(lib.ConversableAgent, "a", llm_config=False, code_execution_config=config)
        yield config, agent
        if not isinstance(agent, Exception):
            yield agent.use_docker, agent.code_executor
    for key in ("use_docker", "work_dir", "timeout"):
        settings = {"executor": "commandline-local", key: None}
        yield outcome(lib.ConversableAgent, "a", llm_config=False, code_execution_config=settings)
    for executor in ("x", 5):
        settings = {"executor": executor}
        yield outcome(lib.ConversableAgent, "a", llm_config=False, code_execution_config=settings)
    yield lib.UserProxyAgent("user").use_docker
