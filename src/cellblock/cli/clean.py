"""`cellblock clean`: remove the control groups and the containers that dead owners left."""

from __future__ import annotations

import asyncio
import importlib.util

import click


@click.command("clean")
def command() -> int:
    """Remove control groups and containers that were ours and whose owner is gone, and print their names.

    A container that was to be kept stays, and so does anybody else's.
    """
    for path in _clean_groups():
        click.echo(path)
    if importlib.util.find_spec("aiodocker") is None:
        click.echo(
            "Containers were not looked at: that needs the extra `docker`, pip install 'cellblock[docker]'.",
            err=True,
        )
        return 0
    for name in asyncio.run(_clean_containers()):
        click.echo(name)
    return 0


def _clean_groups() -> list[str]:
    from ..runtime.server.cgroups import sweep  # `clean --help` does without
    from ..sandbox import cgroups

    return [path for folder in cgroups.find().folders for path in sweep(folder)]


async def _clean_containers() -> list[str]:
    from ..containers.client import connected
    from ..containers.orphans import remove_orphans

    async with connected() as client:
        return await remove_orphans(client)
