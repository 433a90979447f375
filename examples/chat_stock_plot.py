"""A library is missing: a person says how to install it, then the code draws the plot.

    python examples/chat_stock_plot.py [--docker [IMAGE]] [--model NAME]

The package comes from a folder, so nothing is downloaded. A person sees all code before it runs:
Enter runs it, other words are sent to the assistant instead. Without --model, the person is
scripted as well. The plot is `coding/gains.svg`.
"""

from __future__ import annotations

from pathlib import Path

from package_index import write_wheel
from settings import Settings, read_settings

from cellblock.chat import AssistantAgent, IOStream, UserProxyAgent

PRICES = """week,Arbor,Breeze
1,40.0,125.0
2,41.2,121.5
3,43.6,118.0
4,42.4,122.5
5,45.8,127.5
6,48.0,131.0
"""
TASK = (
    "prices.csv has the share prices of two companies, one row a week. Plot by how many percent "
    "each has risen since week 1, and save the plot as gains.svg. Use our library linechart: "
    "linechart.save_chart(path, title, lines), where lines has the values of each line by name."
)
ANSWERS = [
    "",
    "Please install it with an sh block. Our packages are in the folder packages.",
    "",
    "",
    "exit",
]


def main(settings: Settings) -> None:
    folder = Path("coding")
    folder.mkdir(exist_ok=True)
    (folder / "prices.csv").write_text(PRICES)
    write_wheel(Path(__file__).with_name("linechart.py"), folder / "packages")
    assistant = AssistantAgent("assistant", llm_config=settings.llm_config())
    user = UserProxyAgent(
        "user",
        code_execution_config={"work_dir": folder, "use_docker": settings.docker or False},
    )
    with IOStream.set_default(settings.person(ANSWERS)):
        user.initiate_chat(assistant, message=TASK)


if __name__ == "__main__":
    main(read_settings("chat_stock_plot", __doc__))
