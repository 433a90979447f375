"""The 14th Fibonacci number: one agent writes code, one runs it, a human has the last word."""

from scripted import model_config, with_model

ANSWERS = ["And how many digits has the 140th?", "exit", "", "exit"]
PROGRAM = """```python
def fibonacci(count):
    a, b = 1, 1
    for _ in range(count - 1):
        a, b = b, a + b
    return a

print({})
```
"""
TASK = "What is the 14th number of the Fibonacci sequence?"


def run(lib):
    executor = lib.LocalCommandLineCodeExecutor(work_dir=".")
    user = runner(lib, {"executor": executor})
    yield user.initiate_chat(writer(lib), message=TASK)
    yield user.chat_messages
    by_dict = runner(lib, {"work_dir": "coding", "use_docker": False})
    yield by_dict.initiate_chat(writer(lib), message=TASK, max_turns=2)
    always = runner(lib, {"executor": executor}, human_input_mode="ALWAYS")
    yield always.initiate_chat(writer(lib), message=TASK)


def runner(lib, config, human_input_mode="TERMINATE"):
    return lib.ConversableAgent(
        "runner",
        llm_config=False,
        code_execution_config=config,
        human_input_mode=human_input_mode,
        is_termination_msg=lambda message: message["content"].endswith("TERMINATE"),
    )


def writer(lib):
    replies = (
        "I count up.\n\n" + PROGRAM.format("fibonacci(14)"),
        "It is 377. TERMINATE",
        "The same function answers that.\n\n" + PROGRAM.format("len(str(fibonacci(140)))"),
        "It has 29 digits. TERMINATE",
    )
    return with_model(
        lib.ConversableAgent(
            "writer",
            system_message="You write Python.",
            llm_config=model_config(*replies),
            human_input_mode="NEVER",
        )
    )
