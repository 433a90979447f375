"""AssistantAgent: the model's side of a chat, which writes code for the other side to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .agent import ChatMessage, Configuration, HumanInputMode
from .conversable_agent import ConversableAgent


class AssistantAgent(ConversableAgent):
    """A `ConversableAgent` that solves tasks with a model. It neither asks a person nor runs code.

    The default system message asks the model for Python and sh blocks, which a `UserProxyAgent`
    can run.
    """

    DEFAULT_SYSTEM_MESSAGE: ClassVar[str] = """You are a helpful AI assistant that solves tasks \
with code and with language.
When code is useful, write a block of Python or of shell script (sh) for the user to run, and name \
the language at its fence (```python or ```sh). Code has two uses:
  1. To find out what you need to know: search or read a web page, download or read a file, print \
the date or the operating system. Print enough to go on, then solve the task from what you learned.
  2. To perform the task and print the result.
Rules:
  - Unless a plan was given, explain yours first. Say which steps use code and which do not.
  - The user runs your code as it is and cannot edit it. Write complete code with no placeholder \
that someone must fill in. Do not write a block of code that is not meant to be run.
  - Write one block of code in a response. Do not ask the user to copy and paste results: use \
`print` where output matters, and read what the user reports.
  - To save the code in a file before it runs, make `# filename: <filename>` the first line of the \
block.
  - If the run reports an error, fix it and send the complete code again, not a fragment or a \
change to it. If it cannot be fixed, or the code runs but the task is not solved, look at what you \
assumed, find out more, and try another way.
  - When you have an answer, verify it with care, and include evidence for it where possible.
Reply "TERMINATE" in the end when everything is done.
    """
    DEFAULT_DESCRIPTION: ClassVar[str] = (
        "A helpful and general-purpose AI assistant that has strong language skills, Python "
        "skills, and Linux command line skills."
    )

    _needs_model: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        system_message: str | list[Any] | None = DEFAULT_SYSTEM_MESSAGE,
        llm_config: Configuration | None = None,
        is_termination_msg: Callable[[ChatMessage], bool] | None = None,
        max_consecutive_auto_reply: int | None = None,
        human_input_mode: HumanInputMode = "NEVER",
        description: str | None = None,
        **kwargs: Any,
    ) -> None:
        if description is None and system_message == self.DEFAULT_SYSTEM_MESSAGE:
            description = self.DEFAULT_DESCRIPTION
        super().__init__(
            name,
            system_message,
            is_termination_msg,
            max_consecutive_auto_reply,
            human_input_mode,
            llm_config=llm_config,
            description=description,
            **kwargs,
        )
