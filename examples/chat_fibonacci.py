"""Two agents: one writes code, the other one runs it, and a person has the last word.

    python examples/chat_fibonacci.py [--docker [IMAGE]] [--model NAME]

The person is asked when the writer has finished. Without --model, the person is scripted as well.
"""

from __future__ import annotations

from settings import Settings, read_settings

from cellblock.chat import ConversableAgent, IOStream

TASK = "What is the 14th number of the Fibonacci sequence? The first two are 1 and 1."
WRITER = (
    "You solve tasks with Python. Write one complete program in a ```python block, and print what "
    "you want to know; the user runs it and shows you the output. When you know the answer, say "
    "it in one sentence, and end the message with TERMINATE."
)
ANSWERS = ["And how many digits has the 140th?", "exit"]


def main(settings: Settings) -> None:
    with settings.sync_executor() as executor:
        writer = ConversableAgent(
            "writer",
            system_message=WRITER,
            llm_config=settings.llm_config(),
            human_input_mode="NEVER",
        )
        runner = ConversableAgent(
            "runner",
            llm_config=False,
            code_execution_config={"executor": executor},
            human_input_mode="TERMINATE",
            is_termination_msg=lambda message: message["content"].rstrip().endswith("TERMINATE"),
        )
        with IOStream.set_default(settings.person(ANSWERS)):
            result = runner.initiate_chat(writer, message=TASK)
    print(f"\nThe person said: {result.human_input}")


if __name__ == "__main__":
    main(read_settings("chat_fibonacci", __doc__))
