"""Compare `cellblock serve` with sessions in process, load it and kill it: `benchmarks.serve`.

Both sides of a comparison take turns, so that other load affects both.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command, serve_kills, serve_load, serve_programs, serve_speed

MEASURES: dict[str, command.Measure] = {
    "run": serve_speed.trivial_run,
    "64-clients": serve_speed.sixty_four_clients,
    "programs": serve_programs.programs,
    "load": serve_load.load,
    "kill-session": serve_kills.killed_sessions,
    "kill-server": serve_kills.killed_server,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for, and print the figures."""
    command.run(
        "benchmarks.serve",
        MEASURES,
        arguments,
        about=__doc__,
        sessions="number of sessions for the load, with 10 runs each (default: 1000)",
    )


if __name__ == "__main__":
    main()
