"""A model uses functions of yours: it is told about them, and its code imports them.

    python examples/load_data.py [--docker [IMAGE]] [--model NAME]

The packages that the functions require are installed for the code that runs.
"""

from __future__ import annotations

import asyncio

from settings import Settings, read_settings

from cellblock import ImportFromModule, with_requirements
from cellblock.agents import AssistantAgent, CodeExecutorAgent
from cellblock.teams import Console, RoundRobinGroupChat, TextMentionTermination

TASK = "Who of our people lives in Lisbon? Show them as a table, the oldest first."
CODER = (
    "You write Python code in ```python blocks; another agent runs it and shows you the output. "
    "When the output answers the task, reply with TERMINATE alone.\n\n"
)


@with_requirements()
def load_data() -> list[dict[str, str | int]]:
    """Return our people. Each has the keys "name", "city" and "age"."""
    return [
        {"name": "Ines", "city": "Lisbon", "age": 34},
        {"name": "Otto", "city": "Vienna", "age": 51},
        {"name": "Rui", "city": "Lisbon", "age": 47},
        {"name": "Maja", "city": "Zagreb", "age": 29},
    ]


@with_requirements(
    python_packages=["tabulate>=0.9"], global_imports=[ImportFromModule("tabulate", ["tabulate"])]
)
def as_table(rows: list[dict[str, str | int]]) -> str:
    """Return rows with the same keys as a Markdown table."""
    return tabulate(rows, headers="keys", tablefmt="github")  # noqa: F821


async def main(settings: Settings) -> None:
    model = settings.model_client()
    async with settings.executor(functions=[load_data, as_table]) as executor:
        prompt = CODER + executor.format_functions_for_prompt()
        coder = AssistantAgent("coder", model, system_message=prompt)
        runner = CodeExecutorAgent("executor", executor)
        team = RoundRobinGroupChat(
            [coder, runner], termination_condition=TextMentionTermination("TERMINATE"), max_turns=6
        )
        await Console(team.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main(read_settings("load_data", __doc__)))
