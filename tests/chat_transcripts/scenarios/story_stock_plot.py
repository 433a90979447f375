"""A plot of share prices: its library is missing, and a human says how to install it."""

import contextlib
import csv
import os
import sys
from pathlib import Path

from scripted import model_config, with_model

EXAMPLES = Path(__file__).parents[3] / "examples"
ANSWERS = ["", "Please install it with an sh block. It is in the folder packages.", "", "", "exit"]
TASK = "Plot the share prices in prices.csv with our library linechart. Save them as prices.svg."
PRICES = {"week": [1, 2, 3], "Arbor": [40.0, 41.25, 43.5], "Breeze": [125, 121.5, 118]}
PROGRAM = """```python
# filename: plot.py
import csv

import linechart

with open("prices.csv", newline="") as file:
    rows = list(csv.DictReader(file))
lines = {name: [float(row[name]) for row in rows] for name in ("Arbor", "Breeze")}
linechart.save_chart("prices.svg", "Share prices", lines)
print(f"{len(rows)} weeks")
```
"""
REPLIES = (
    "I read the prices and draw a line for each company.\n\n" + PROGRAM,
    "The library linechart is not installed. Please install it.",
    "```sh\npip install --quiet --no-index --find-links packages linechart\n```\n",
    "Now it should run.\n\n" + PROGRAM,
    "TERMINATE",
)


def run(lib):
    with contextlib.redirect_stdout(WithoutFolder(sys.stdout)):
        yield from story(lib)


def story(lib):
    folder = Path("coding")
    prepare(folder)
    executor = lib.LocalCommandLineCodeExecutor(
        work_dir=folder, virtual_env_context=lib.create_virtual_env("environment")
    )
    assistant = with_model(
        lib.AssistantAgent("assistant", "You write code.", llm_config=model_config(*REPLIES))
    )
    user = lib.UserProxyAgent("user", code_execution_config={"executor": executor})
    yield user.initiate_chat(assistant, message=TASK)
    yield assistant.chat_messages
    yield sorted(path.name for path in folder.iterdir() if not path.name.startswith("tmp_code_"))
    yield (folder / "prices.svg").read_text()


def prepare(folder):
    """Write the prices, and the folder from which the library is installed."""
    sys.path.insert(0, str(EXAMPLES))
    from package_index import write_wheel

    folder.mkdir()
    with open(folder / "prices.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(PRICES)
        writer.writerows(zip(*PRICES.values(), strict=True))
    write_wheel(EXAMPLES / "linechart.py", folder / "packages")


class WithoutFolder:
    """A text stream that shows the current folder, which is a new one in each run, as WORK."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text):
        return self.stream.write(text.replace(os.getcwd(), "WORK"))

    def flush(self):
        self.stream.flush()
