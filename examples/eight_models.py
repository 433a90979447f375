"""Compare eight models in eight branches of one live session, which loads the data once.

    python examples/eight_models.py [FILE.csv]

The file has the columns `hour` and `load`. Without a file, the session generates 2000 hours of
electricity use: a daily and a yearly wave, some peaks, and noise. The branches share the memory of
the session until they write to it, and are isolated from each other.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cellblock import CodeBlock, SandboxSessionCodeExecutor

GENERATE = """
import numpy as np, pandas as pd
chance = np.random.default_rng(2025)
hour = np.sort(chance.choice(8760, 2000, replace=False))
load = 310 + 60 * np.sin((hour % 24 - 9) * np.pi / 12) + 45 * np.cos(hour * 2 * np.pi / 8760)
load += np.where(chance.random(2000) < 0.03, 40, 0) + chance.normal(0, 8, 2000)
pd.DataFrame({"hour": hour, "load": load.round(1)}).to_csv("load.csv", index=False)
"""

LOAD = """
import numpy as np, pandas as pd
table = pd.read_csv("load.csv").sort_values("hour")
hour, load = table["hour"].to_numpy(float), table["load"].to_numpy(float)
is_test = np.arange(len(table)) % 4 == 0   # every fourth hour is used for testing

def fourier(day_waves, year_waves):
    waves = [(24, k) for k in range(1, day_waves + 1)]
    waves += [(8760, k) for k in range(1, year_waves + 1)]
    angles = [2 * np.pi * k * hour / period for period, k in waves]
    columns = [f(angle) for angle in angles for f in (np.sin, np.cos)]
    return np.column_stack([np.ones_like(hour)] + columns)

def ridge(features, strength):
    known, answers = features[~is_test], load[~is_test]
    normal = known.T @ known + strength * np.eye(features.shape[1])
    return features[is_test] @ np.linalg.solve(normal, known.T @ answers)

def neighbours(count):
    apart = np.abs(hour[is_test][:, None] - hour[~is_test][None, :])
    distance = np.minimum(apart % 24, 24 - apart % 24) + apart / 400
    return load[~is_test][np.argsort(distance, axis=1)[:, :count]].mean(axis=1)

print(f"{len(table)} hours, {is_test.sum()} of them used for testing")
"""

MODELS = {
    "always the mean": "ridge(fourier(0, 0), 0)",
    "day, 1 wave": "ridge(fourier(1, 0), 0)",
    "day, 3 waves": "ridge(fourier(3, 0), 0)",
    "day and year, 1 wave each": "ridge(fourier(1, 1), 0)",
    "day 3 waves, year 2, ridge 10": "ridge(fourier(3, 2), 10.0)",
    "day 11 waves, year 40, ridge 0.1": "ridge(fourier(11, 40), 0.1)",
    "3 nearest hours": "neighbours(3)",
    "25 nearest hours": "neighbours(25)",
}

SCORE = """
import time
started = time.perf_counter()
error = float(np.sqrt(np.mean(({model} - load[is_test]) ** 2)))
score = {{"error": error, "milliseconds": (time.perf_counter() - started) * 1000}}
"""


async def run(session: SandboxSessionCodeExecutor, code: str) -> str:
    """Run `code` and return its output. Raises `ExecutionFailed` if it fails."""
    result = await session.execute_code_blocks([CodeBlock(code, "python")])
    return result.check().output


async def score(branch: SandboxSessionCodeExecutor, model: str) -> dict[str, float]:
    """Evaluate one model in its own branch."""
    await run(branch, SCORE.format(model=model))
    return await branch.get("score")


async def main(data: bytes | None) -> None:
    async with SandboxSessionCodeExecutor() as session:
        if data is None:
            await run(session, GENERATE)
        else:
            (session.work_dir / "load.csv").write_bytes(data)
        print(await run(session, LOAD), end="")
        branches = await session.fork(len(MODELS))
        try:
            scores = await asyncio.gather(*map(score, branches, MODELS.values()))
        finally:
            await asyncio.gather(*(branch.stop() for branch in branches))
        table = sorted(zip(MODELS, scores, strict=True), key=lambda row: row[1]["error"])
        for name, found in table:
            print(f"{name:<34} error {found['error']:6.2f}   {found['milliseconds']:6.1f} ms")
        await session.set("best", table[0][0])
        print(await run(session, "print('best:', best)"), end="")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else None))
