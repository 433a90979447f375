"""The image of a Jupyter kernel gateway: a layer on top of any image with Python, built once.

uv downloads the packages on the host, with the host's settings, for the Python of the image. So the
build needs no network and the image no pip.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...aio.shielded import run_in_thread
from ...environments.requirements import digest
from ...environments.uv import UvInstaller, log_line, run_uv, user_cache_dir
from ...errors import PackageError
from ...runtime.linux.safe_folder import remove_tree
from ..client import EngineClient
from ..image_build import build_if_missing, build_image, pack_context
from ..image_python import inspect_python
from ..images import OnPull, inspect_or_pull
from .dockerfile import DOCKERFILE, GATEWAY, KERNEL, KERNEL_SPEC, REQUIREMENTS

_REPOSITORY = "cellblock-jupyter"


async def gateway_image(client: EngineClient, base: str, on_pull: OnPull | None = None) -> str:
    """Return the reference of `base` plus a kernel gateway. Build the image if it is missing.

    Raise `ImageUnavailable` if `base` cannot be pulled, `PackageError` if the gateway's packages
    cannot be installed, `BackendError`, which quotes the build's output, if the build fails.
    """
    image_info = await inspect_or_pull(client, base, on_pull)
    recipe = json.dumps([DOCKERFILE, GATEWAY, KERNEL, KERNEL_SPEC])
    key = await run_in_thread(digest, REQUIREMENTS, recipe, image_info["Id"])
    installer = UvInstaller(user_cache_dir("images"), key)
    reference = f"{_REPOSITORY}:{installer.digest}"

    async def build(lock: int) -> None:
        python = await inspect_python(client, base, image_info)
        packages = installer.partial_dir / "packages"
        arguments = python.uv_install_arguments(REQUIREMENTS, packages)
        if error := await run_uv(arguments, installer, lock, log_line):
            raise PackageError(
                "The packages of the Jupyter kernel gateway cannot be installed for Python "
                f"{python.version} of the image {base}. uv says:\n{error}"
            )
        # Only front-ends use the debugger, and kernels start faster without it.
        await run_in_thread(remove_tree, str(packages / "debugpy"))
        context = await run_in_thread(_pack_context, installer, str(image_info["Id"]))
        await build_image(client, reference, context)

    await build_if_missing(client, reference, installer, log_line, build)
    return reference


def _pack_context(installer: UvInstaller, base: str) -> Path:
    """Write the build context, and return its path."""
    files = {
        "Dockerfile": DOCKERFILE.format(base=base.removeprefix("sha256:")),
        "gateway.py": GATEWAY,
        "kernel.py": KERNEL,
        "share/kernels/python3/kernel.json": json.dumps(KERNEL_SPEC),
    }
    with installer.translate_errors():
        for name, text in files.items():
            path = installer.partial_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        archive = installer.partial_dir / "context.tar"
        names = ("Dockerfile", "gateway.py", "kernel.py", "share", "packages")
        pack_context(archive, *(installer.partial_dir / name for name in names))
    return archive
