"""`cellblock clean`: remove the containers that dead owners left."""

from __future__ import annotations

import asyncio

import click


@click.command("clean")
def command() -> int:
    """Remove containers that were ours and whose owner is gone, and print their names.

    A container that was to be kept stays, and so does anybody else's.
    """
    for name in asyncio.run(_clean()):
        click.echo(name)
    return 0


async def _clean() -> list[str]:
    from ..containers.client import connected  # `clean --help` does without
    from ..containers.owners import remove_orphans

    async with connected() as client:
        return await remove_orphans(client)
