"""Measure blocks in containers beside plain `docker exec` of the same code, in one run: `python -m benchmarks.docker`.

The container is the same for both sides, and so is its user. Ratios of medians are what counts: the two take turns, so that
what else the machine does hits both. The engine is the one that DOCKER_HOST names, or this machine's.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command, containers

MEASURES: dict[str, command.Measure] = {
    "hi": containers.back_to_back,
    "pandas": containers.preloaded,
    "callers": containers.eight,
    "session": containers.session_cell,
    "start": containers.starting,
    "stop": containers.stopping,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for, and print it."""
    image = "the image, with sh and Python (python:3-slim)"
    command.run("benchmarks.docker", MEASURES, arguments, about=__doc__, texts={"image": image})


if __name__ == "__main__":
    main()
