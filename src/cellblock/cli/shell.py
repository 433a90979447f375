"""`cellblock shell`: type commands into a sandbox that is kept."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import sys

import click


@click.command("shell")
@click.argument("ref")
@click.option("--user", metavar="NAME", help="The user that runs commands, such as root.")
def command(ref: str, user: str | None) -> None:
    """Type commands into a shell of the sandbox that REF names.

    REF is what `ref()` of a kept sandbox returns. The shell keeps its folder, variables and
    functions. Ctrl-C ends a command; `exit` or Ctrl-D leaves, and the sandbox lives on. Programs
    have no terminal and no input, and what would control yours is shown as a replacement character.
    """
    from ..sync import Sandbox  # `shell --help` does without

    try:
        box = Sandbox.attach(ref)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="REF") from error
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # `input` edits lines with it
    decode = [codecs.getincrementaldecoder("utf-8")("replace").decode for _ in range(2)]

    def show(stream: int, data: bytes) -> None:
        from ..visible_text import visible

        text = decode[stream - 1](data).replace("\r\n", "\n")
        click.echo(visible(text), err=stream == 2, nl=False)

    prompt = "$ " if sys.stdin.isatty() else ""
    with box, box.shell(user=user) as shell:
        while True:
            try:
                if (line := input(prompt)).strip() == "exit":
                    return
                shell.run(line, timeout=None, on_output=show)
            except EOFError:
                return
            except KeyboardInterrupt:
                click.echo()
