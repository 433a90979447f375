"""An agent writes code, sees it fail, corrects it, and answers.

python examples/self_repair.py [--docker [IMAGE]] [--model NAME]
"""

from __future__ import annotations

import asyncio

from settings import Settings, read_settings

from cellblock.agents import CodeExecutorAgent
from cellblock.teams import Console

ORDERS = """item,quantity,unit_price
lamp,2,19.50
chair,6,45.00
table,1,180.00
"""
TASK = "The file orders.csv has our orders. How much do we owe?"


async def main(settings: Settings) -> None:
    model = settings.model_client()
    async with settings.executor() as executor:
        (executor.work_dir / "orders.csv").write_text(ORDERS)
        agent = CodeExecutorAgent("coder", executor, model_client=model, max_retries_on_error=2)
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main(read_settings("self_repair", __doc__)))
