"""`cellblock clean`: remove control groups and containers left behind by crashed processes."""

from __future__ import annotations

import asyncio
import importlib.util

import click


@click.command("clean")
def command() -> int:
    """Remove control groups and containers left behind by crashed processes, and print their names.

    Only control groups and containers that Cellblock created are removed. A container that was
    created to be kept is not removed.
    """
    for path in _remove_control_groups():
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


async def _remove_containers() -> list[str]:
    from ..containers.client import open_client
    from ..containers.orphans import remove_orphans

    async with open_client() as client:
        return await remove_orphans(client)
