"""The image of a Jupyter kernel gateway: any image with Python, and our Dockerfile over it. Built once, kept by the engine.

The packages are fetched here, by this machine's uv with its settings, for the image's Python; so building needs no network,
and the image no pip.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import tarfile
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..cell.folders import remove_tree
from ..errors import ImageUnavailable, PackageError, PlaceError
from .client import Client, status_of, translated
from .gateway import DOCKERFILE, GATEWAY, KERNEL, KERNEL_SPEC, PROBE, REQUIREMENTS
from .images import OnPull, pull

if TYPE_CHECKING:
    from aiodocker.images import DockerImages

_REPOSITORY = "cellblock-jupyter"
_PATIENCE = 600.0  # seconds that fetching or building may take
_WORDS = 30  # lines of it that an error quotes
_NOT_FOUND = 404
# uv knows only some versions of glibc by name, and wheels for an older one are for the newer ones as well.
_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)


async def gateway_image(client: Client, base: str, on_pull: OnPull | None = None) -> str:
    """Give the reference of an image with a kernel gateway over the image `base`, built when it is not there.

    `base` is fetched when the engine has it not. Raises `ImageUnavailable`, `PackageError` when the packages cannot be had,
    `PlaceError` with the end of what a failed build said.
    """
    facts = await image_facts(client, base)
    if facts is None:
        await pull(client, base, on_pull)
        facts = await image_facts(client, base)
    if facts is None:
        raise ImageUnavailable(f"The engine has no image {base}, though it has fetched it. Is it for this kind of machine?")
    recipe = json.dumps([facts["Id"], REQUIREMENTS, DOCKERFILE, GATEWAY, KERNEL, KERNEL_SPEC])
    reference = f"{_REPOSITORY}:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if await image_facts(client, reference) is None:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="cellblock-image-"))
        try:
            await _fetch(await _probe(client, base), folder / "context" / "packages")
            # A debugger for front-ends, which nobody here has; without it kernels start faster.
            await asyncio.to_thread(remove_tree, str(folder / "context" / "packages" / "debugpy"))
            await _build(client, base, reference, await asyncio.to_thread(_context, folder / "context"))
        finally:
            await asyncio.to_thread(remove_tree, str(folder))
    return reference


async def image_facts(client: Client, reference: str) -> dict[str, Any] | None:
    """Give what the engine says about an image; `None` when it has none of that name. Raises `PlaceError`."""
    images: DockerImages = client.docker.images
    try:
        with translated(f"Image {reference}"):
            return await images.inspect(reference)
    except PlaceError as error:
        if status_of(error.__cause__) == _NOT_FOUND:
            return None
        raise


async def _probe(client: Client, base: str) -> dict[str, Any]:
    """Find out which Python the image has."""
    config = {
        "Image": base,
        "Entrypoint": ["python3", "-c", PROBE],
        "Cmd": [],
        "HostConfig": {"NetworkMode": "none", "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"]},
    }
    with translated(f"Image {base} cannot be looked into: no program python3 can be started in it"):
        container = await client.docker.containers.create(config, name=f"cellblock-probe-{secrets.token_hex(8)}")
        try:
            await container.start()
            await container.wait(timeout=_PATIENCE)
            said = "".join(await container.log(stdout=True, stderr=True))
        finally:
            await container.delete(force=True)
    try:
        return json.loads(said)
    except ValueError as error:
        raise PlaceError(f"The Python of image {base} does not work. It said: {said[-1000:]}") from error


async def _fetch(found: dict[str, Any], folder: Path) -> None:
    """Put the packages of the gateway, and of a kernel, for that Python into `folder`. Raises `PackageError`."""
    from uv import find_uv_bin  # only a build needs it

    options = ("--target", str(folder), "--python-version", found["python"], "--python-platform", _platform(found))
    argv = ["pip", "install", "--color", "never", "--no-progress", *options, "--only-binary", ":all:"]
    process = await asyncio.create_subprocess_exec(
        find_uv_bin(),
        *argv,
        *REQUIREMENTS,
        cwd=folder.parents[1],  # no project's settings are to be found from here
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            said, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        words = "\n".join(said.decode(errors="replace").splitlines()[-_WORDS:])
        raise PackageError(
            f"The packages of a Jupyter kernel gateway cannot be had for Python {found['python']}. uv says:\n{words}"
        )


def _platform(found: dict[str, Any]) -> str:
    """Give uv's name for what the image is."""
    libc, version = found["libc"]
    if libc != "glibc":
        return f"{found['machine']}-unknown-linux-musl"
    minor = int(version.split(".")[1])
    return f"{found['machine']}-manylinux_2_{next((known for known in _GLIBC if known <= minor), 17)}"


def _context(folder: Path) -> Path:
    """Pack all that is in `folder`, and what else the build needs; everything is root's, and to be read by everybody."""
    texts = {
        "Dockerfile": DOCKERFILE,
        "gateway.py": GATEWAY,
        "kernel.py": KERNEL,
        "share/kernels/python3/kernel.json": json.dumps(KERNEL_SPEC),
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    packed = folder.with_name("context.tar")
    with tarfile.open(packed, mode="w") as archive:
        archive.add(folder, arcname=".", filter=_readable)
    return packed


def _readable(item: tarfile.TarInfo) -> tarfile.TarInfo:
    item.uid = item.gid = 0
    item.uname = item.gname = "root"
    item.mode |= 0o555 if item.isdir() or item.mode & 0o100 else 0o444
    return item


async def _build(client: Client, base: str, reference: str, context: Path) -> None:
    words = deque[str](maxlen=_WORDS)
    try:
        with context.open("rb") as data, translated("the build failed"):
            async with asyncio.timeout(_PATIENCE):
                async for item in _progress(client, {"t": reference, "buildargs": json.dumps({"BASE": base})}, data):
                    words.extend(str(item.get("stream", item.get("error", ""))).splitlines())
                    if "error" in item:
                        raise PlaceError(str(item["error"]))
    except (PlaceError, TimeoutError) as error:
        raise PlaceError(
            f"The image of a Jupyter kernel gateway over {base} cannot be built: {error}\nThe build said:\n"
            + "\n".join(words)
        ) from error


async def _progress(client: Client, settings: Mapping[str, str], data: BinaryIO) -> AsyncGenerator[dict[str, Any], None]:
    """Build, and give what the engine says meanwhile."""
    # Not `images.build`, which can neither keep the build from the network nor, of old, tell that it failed.
    request = client.docker._query(
        "build",
        "POST",
        params={**settings, "networkmode": "none", "rm": "1", "forcerm": "1"},
        headers={"Content-Type": "application/x-tar"},
        data=data,
        timeout=None,
    )
    rest = b""
    async with request as response:
        async for piece in response.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in filter(None, map(bytes.strip, lines)):
                yield json.loads(line)
