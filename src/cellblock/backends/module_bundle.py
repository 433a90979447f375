"""The modules of the runtime server, for containers in which Cellblock is not installed."""

from __future__ import annotations

import functools
import json
import marshal
import zlib
from importlib.util import MAGIC_NUMBER

from .server_process import PACKAGE_DIR, cloudpickle_dir

# A zero byte and the magic number of the bytecode: the first output of `bootstrap.CONTAINER`.
MAGIC_BYTES = 1 + len(MAGIC_NUMBER)


def module_bundle(magic: bytes) -> bytes:
    """Return the modules for the Python that sent `magic`.

    The format is a letter for the kind, the length in four bytes, and the data. If the Python
    understands our bytecode, it gets compiled modules, because compiling the source takes a large
    part of the start of a server.
    """
    kind, data = (
        (b"C", compiled_modules()) if magic[1:] == MAGIC_NUMBER else (b"S", source_modules())
    )
    return kind + len(data).to_bytes(4, "big") + data


@functools.cache
def compiled_modules() -> bytes:
    """Return the modules as bytecode. The first call in a process takes 0.1 s."""
    code = {
        name: compile(text, f"<{name}>", "exec", dont_inherit=True)
        for name, text in _read_modules().items()
    }
    return zlib.compress(
        marshal.dumps({name: marshal.dumps(module) for name, module in code.items()})
    )


@functools.cache
def source_modules() -> bytes:
    """Return the modules as source."""
    return zlib.compress(json.dumps(_read_modules()).encode())


def _read_modules() -> dict[str, str]:
    modules = {"cellblock": ""}
    for path in sorted((PACKAGE_DIR / "runtime").rglob("*.py")):
        parts = path.relative_to(PACKAGE_DIR).with_suffix("").parts
        names = parts[:-1] if parts[-1] == "__init__" else parts
        modules[".".join(("cellblock", *names))] = path.read_text()
    for path in cloudpickle_dir().glob("*.py"):
        names = () if path.stem == "__init__" else (path.stem,)
        modules[".".join(("cellblock", "cloudpickle", *names))] = path.read_text()
    return modules
