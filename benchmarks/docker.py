"""Compare blocks in containers with `docker exec` of the same code: `python -m benchmarks.docker`.

Both sides use the same container and user, and take turns, so that other load affects both. Compare
the ratios of medians. DOCKER_HOST selects the container engine; by default it is the local one.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command, containers

MEASURES: dict[str, command.Measure] = {
    "hi": containers.back_to_back,
    "pandas": containers.preloaded,
    "callers": containers.eight_callers,
    "session": containers.session_cell,
    "start": containers.starting,
    "stop": containers.stopping,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    image = "image with sh and Python (default: python:3-slim)"
    command.run("benchmarks.docker", MEASURES, arguments, about=__doc__, texts={"image": image})


if __name__ == "__main__":
    main()
