"""The image of a Jupyter kernel gateway: any image with Python, and our Dockerfile over it. Built once, kept by the engine.

The packages are fetched here, by this machine's uv with its settings, for the image's Python; so building needs no network,
and the image no pip.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...environments.requirements import digest
from ...environments.uv import Workshop, cache_folder, in_thread, run_uv, to_log
from ...errors import PackageError
from ...runtime.linux.rmtree import remove_tree
from ..client import Client
from ..image_build import build_image, pack, unless_there
from ..image_python import python_of
from ..images import OnPull, fetched_facts
from .dockerfile import DOCKERFILE, GATEWAY, KERNEL, KERNEL_SPEC, REQUIREMENTS

_REPOSITORY = "cellblock-jupyter"


async def gateway_image(client: Client, base: str, on_pull: OnPull | None = None) -> str:
    """Give the reference of an image with a kernel gateway over the image `base`, built when it is not there.

    `base` is fetched when the engine has it not. Raises `ImageUnavailable`, `PackageError` when the packages cannot be had,
    `BackendError` with the end of what a failed build said.
    """
    facts = await fetched_facts(client, base, on_pull)
    recipe = json.dumps([DOCKERFILE, GATEWAY, KERNEL, KERNEL_SPEC])
    workshop = Workshop(
        cache_folder("images"), await in_thread(digest, REQUIREMENTS, recipe, facts["Id"])
    )
    reference = f"{_REPOSITORY}:{workshop.digest}"

    async def build(lock: int) -> None:
        python = await python_of(client, base, facts)
        packages = workshop.folder / "packages"
        if words := await run_uv(
            python.installation(REQUIREMENTS, packages), workshop, lock, to_log
        ):
            raise PackageError(
                f"The packages of a Jupyter kernel gateway cannot be had for Python {python.version} of the image {base}. "
                f"uv says:\n{words}"
            )
        # A debugger for front-ends, which nobody here has; without it kernels start faster.
        await in_thread(remove_tree, str(packages / "debugpy"))
        await build_image(client, reference, await in_thread(_context, workshop, str(facts["Id"])))

    await unless_there(client, reference, workshop, to_log, build)
    return reference


def _context(workshop: Workshop, base: str) -> Path:
    """Pack what the build needs."""
    texts = {
        "Dockerfile": DOCKERFILE.format(base=base.removeprefix("sha256:")),
        "gateway.py": GATEWAY,
        "kernel.py": KERNEL,
        "share/kernels/python3/kernel.json": json.dumps(KERNEL_SPEC),
    }
    with workshop.trouble():
        for name, text in texts.items():
            path = workshop.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        packed = workshop.folder / "context.tar"
        pack(
            packed,
            *(
                workshop.folder / name
                for name in ("Dockerfile", "gateway.py", "kernel.py", "share", "packages")
            ),
        )
    return packed
