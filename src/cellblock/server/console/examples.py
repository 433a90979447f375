"""EXAMPLES: what the playground offers to a key that has run nothing yet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A block of Python that runs wherever sessions do. `name` is its part of an address."""

    name: str
    title: str
    text: str
    code: str


EXAMPLES = (
    Example(
        "values",
        "Compute something",
        "The value of the last line is shown. Variables stay for later runs in the session.",
        """\
import statistics

temperatures = {"Mon": 18.5, "Tue": 21.0, "Wed": 19.5, "Thu": 24.0, "Fri": 22.5}
warmest = max(temperatures, key=temperatures.get)
print(f"The warmest day was {warmest}.")
statistics.mean(temperatures.values())
""",
    ),
    Example(
        "table",
        "Show a table",
        "Tables, pictures and HTML are shown as in a notebook.",
        """\
from IPython.display import HTML

rows = "".join(f"<tr><td>{n}</td><td>{n**2}</td><td>{n**3}</td></tr>" for n in range(1, 6))
HTML(f"<table><tr><th>n</th><th>square</th><th>cube</th></tr>{rows}</table>")
""",
    ),
    Example(
        "limits",
        "See what code cannot do",
        "It writes files only into the folder of its session, where you can download them.",
        """\
import socket
from pathlib import Path

def attempt(what, action):
    try:
        action()
        print(f"{what}: done")
    except OSError as error:
        print(f"{what}: {error}")

attempt("Write into the own folder", lambda: Path("notes.txt").write_text("kept"))
attempt("Write outside of it", lambda: Path("/usr/notes.txt").write_text("lost"))
attempt("Reach the internet", lambda: socket.create_connection(("example.com", 443), timeout=3))
""",
    ),
)
