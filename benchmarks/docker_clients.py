"""Two client libraries of a container engine, side by side: 64 execs at once in one container, and one after the other.

    python -m benchmarks.docker_clients IMAGE

`docker` blocks, so that each exec needs a thread; `aiodocker` waits for all of them on one loop. Prints JSON.
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

CONCURRENT, ROUNDS, ALONE = 64, 3, 30
ARGV = ["/bin/sh", "-c", "echo hi"]


def cpu_seconds() -> float:
    """Give the CPU time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def summary(
    rounds: list[float], alone: list[float], cpu: float, threads: int, lost: int
) -> dict[str, float]:
    """Give the numbers of one library; `lost` execs ended well, but without their output."""
    execs = CONCURRENT * ROUNDS + ALONE
    return {
        "all_64_seconds": round(statistics.median(rounds), 3),
        "one_alone_ms": round(statistics.median(alone) * 1000, 1),
        "client_cpu_ms_per_exec": round(cpu / execs * 1000, 2),
        "threads": threads,
        "lost_outputs": lost,
    }


def measure_threads(identity: str) -> dict[str, float]:
    """Measure the `docker` package."""
    import docker  # pyright: ignore[reportMissingImports, reportMissingModuleSource] - for this comparison alone

    client: Any = docker.from_env(max_pool_size=CONCURRENT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    container: Any = client.containers.get(identity)

    lost: list[bytes] = []

    def one() -> float:
        begun = time.perf_counter()
        if (said := container.exec_run(ARGV).output) != b"hi\n":
            lost.append(said)
        return time.perf_counter() - begun

    before, rounds = cpu_seconds(), list[float]()
    with ThreadPoolExecutor(CONCURRENT) as pool:
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            for done in [pool.submit(one) for _ in range(CONCURRENT)]:
                done.result()
            rounds.append(time.perf_counter() - begun)
        threads = threading.active_count()
    alone = [one() for _ in range(ALONE)]
    client.close()
    return summary(rounds, alone, cpu_seconds() - before, threads, len(lost))


async def measure_loop(identity: str) -> dict[str, float]:
    """Measure `aiodocker`."""
    import aiodocker

    async with aiodocker.Docker() as client:
        container: Any = client.containers.container(identity)  # pyright: ignore[reportUnknownMemberType]

        lost: list[bytes] = []

        async def one() -> float:
            begun = time.perf_counter()
            execution = await container.exec(ARGV)
            said = b""
            async with execution.start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    said += message.data
            if said != b"hi\n":
                lost.append(said)
            assert (await execution.inspect())["ExitCode"] == 0
            return time.perf_counter() - begun

        before, rounds = cpu_seconds(), list[float]()
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(CONCURRENT)))
            rounds.append(time.perf_counter() - begun)
        threads = threading.active_count()
        alone = [await one() for _ in range(ALONE)]
        return summary(rounds, alone, cpu_seconds() - before, threads, len(lost))


async def main() -> None:
    """Measure both in one container of the image that is named."""
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
