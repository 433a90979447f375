"""`cellblock clean`: remove what was left behind by crashed processes."""

from __future__ import annotations

import asyncio
import importlib.util
import sys

import click


@click.command("clean")
def command() -> int:
    """Remove control groups, sockets and containers left behind by crashed processes.

    Print their names. Only those that Cellblock created are removed. A container that was created
    to be kept is not removed.
    """
    for path in (*_remove_control_groups(), *_remove_sockets()):
        click.echo(path)
    if importlib.util.find_spec("aiodocker") is None:
        click.echo(
            "Containers were not checked. To check them: pip install 'cellblock[docker]'.",
            err=True,
        )
        return 0
    from ..errors import ContainerEngineUnavailable

    try:
        names = asyncio.run(_remove_containers())
    except ContainerEngineUnavailable as error:
        click.echo(f"Containers were not checked. {error}", err=True)
        return 0
    for name in names:
        click.echo(name)
    return 0


def _remove_control_groups() -> list[str]:
    from ..runtime.server.cgroups import remove_orphans  # `clean --help` does without
    from ..sandbox import cgroups

    return [path for folder in cgroups.find_cgroups().folders for path in remove_orphans(folder)]


def _remove_sockets() -> list[str]:
    if sys.platform != "linux":
        return []
    from ..box.kept.address import remove_abandoned_sockets

    return remove_abandoned_sockets()


async def _remove_containers() -> list[str]:
    from ..containers.client import open_client
    from ..containers.orphans import remove_orphans

    async with open_client() as client:
        return await remove_orphans(client)
