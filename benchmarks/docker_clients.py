"""Compare two Docker client libraries: 64 execs at once in one container, and one at a time.

    python -m benchmarks.docker_clients IMAGE

`docker` blocks, so each exec needs a thread. `aiodocker` runs all of them on one event loop. Prints
JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CONCURRENT, ROUNDS, SEQUENTIAL = 64, 3, 30
ARGV = ["/bin/sh", "-c", "echo hi"]


def cpu_seconds() -> float:
    """Return the CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def summary(
    rounds: list[float], alone: list[float], cpu: float, threads: int, lost: int
) -> dict[str, float]:
    """Return the figures of one library. `lost` is the number of execs without their output."""
    execs = CONCURRENT * ROUNDS + SEQUENTIAL
    return {
        "all_64_seconds": round(statistics.median(rounds), 3),
        "one_alone_ms": round(statistics.median(alone) * 1000, 1),
        "client_cpu_ms_per_exec": round(cpu / execs * 1000, 2),
        "threads": threads,
        "lost_outputs": lost,
    }


def measure_threads(identity: str) -> dict[str, float]:
    """Measure the `docker` package."""
    # The package is used only for this comparison.
    import docker  # pyright: ignore[reportMissingImports, reportMissingModuleSource] - optional

    client: Any = docker.from_env(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
        max_pool_size=CONCURRENT
    )
    container: Any = client.containers.get(identity)

    lost: list[bytes] = []

    def one() -> float:
        started = time.perf_counter()
        if (output := container.exec_run(ARGV).output) != b"hi\n":
            lost.append(output)
        return time.perf_counter() - started

    before, rounds = cpu_seconds(), list[float]()
    with ThreadPoolExecutor(CONCURRENT) as pool:
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for done in [pool.submit(one) for _ in range(CONCURRENT)]:
                done.result()
            rounds.append(time.perf_counter() - started)
        threads = threading.active_count()
    alone = [one() for _ in range(SEQUENTIAL)]
    client.close()
    return summary(rounds, alone, cpu_seconds() - before, threads, len(lost))


async def measure_loop(identity: str) -> dict[str, float]:
    """Measure `aiodocker`."""
    import aiodocker

    async with aiodocker.Docker() as client:
        container: Any = client.containers.container(identity)  # pyright: ignore[reportUnknownMemberType]

        lost: list[bytes] = []

        async def one() -> float:
            started = time.perf_counter()
            execution = await container.exec(ARGV)
            output = b""
            async with execution.start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    output += message.data
            if output != b"hi\n":
                lost.append(output)
            assert (await execution.inspect())["ExitCode"] == 0
            return time.perf_counter() - started

        before, rounds = cpu_seconds(), list[float]()
        for _ in range(ROUNDS):
            started = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(CONCURRENT)))
            rounds.append(time.perf_counter() - started)
        threads = threading.active_count()
        alone = [await one() for _ in range(SEQUENTIAL)]
        return summary(rounds, alone, cpu_seconds() - before, threads, len(lost))


async def main() -> None:
    """Measure both libraries in one container of the given image."""
    import aiodocker

    async with aiodocker.Docker() as client:
        containers: Any = client.containers
        config = {
            "Image": sys.argv[1],
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", "read _"],
            "OpenStdin": True,
        }
        container = await containers.create({**config, "HostConfig": {"NetworkMode": "none"}})
        try:
            await container.start()
            found = {"docker": await asyncio.to_thread(measure_threads, container.id)}
            found["aiodocker"] = await measure_loop(container.id)
        finally:
            await container.delete(force=True)
    print(json.dumps({"processors": os.cpu_count(), **found}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
