"""Eight branches of one live session try eight models on the same data, which was loaded once.

    python examples/eight_models.py [FILE.csv]

The file has the columns `hour` and `load`; without one, the session makes up 2000 hours of a small town's electricity: a
daily and a yearly wave, a few festive hours, noise. The branches share the session's memory until they write to it, and see
nothing of each other.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cellblock import CodeBlock, SandboxSessionCodeExecutor

MAKE = """
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
is_test = np.arange(len(table)) % 4 == 0   # every fourth hour is kept back

def fourier(day_waves, year_waves):
    waves = [(24, k) for k in range(1, day_waves + 1)] + [(8760, k) for k in range(1, year_waves + 1)]
    angles = [2 * np.pi * k * hour / period for period, k in waves]
    return np.column_stack([np.ones_like(hour)] + [f(angle) for angle in angles for f in (np.sin, np.cos)])

def ridge(features, strength):
    known, answers = features[~is_test], load[~is_test]
    normal = known.T @ known + strength * np.eye(features.shape[1])
    return features[is_test] @ np.linalg.solve(normal, known.T @ answers)

def neighbours(count):
    distance = lambda a, b: np.minimum(np.abs(a - b) % 24, 24 - np.abs(a - b) % 24) + np.abs(a - b) / 400
    apart = distance(hour[is_test][:, None], hour[~is_test][None, :])
    return load[~is_test][np.argsort(apart, axis=1)[:, :count]].mean(axis=1)

print(f"{len(table)} hours, {is_test.sum()} of them kept back")
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
began = time.perf_counter()
error = float(np.sqrt(np.mean(({model} - load[is_test]) ** 2)))
score = {{"error": error, "milliseconds": (time.perf_counter() - began) * 1000}}
"""


async def run(session: SandboxSessionCodeExecutor, code: str) -> str:
    """Run `code` and give what it printed. Raises when it fails."""
    result = await session.execute_code_blocks([CodeBlock(code, "python")])
    return result.check().output


async def score(branch: SandboxSessionCodeExecutor, model: str) -> dict[str, float]:
    """Try one model in a branch of its own."""
    await run(branch, SCORE.format(model=model))
    return await branch.get("score")


async def main(data: bytes | None) -> None:
    async with SandboxSessionCodeExecutor() as session:
        if data is None:
            await run(session, MAKE)
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
