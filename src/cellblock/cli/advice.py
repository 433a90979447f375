"""Advice on the option that would have helped a block that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..environments.exposed_folder import exposure_of
from ..events import Ended
from ..executors.workspace.missed_files import missed_files
from ..limits import Limits
from ..observation import LACKS_NETWORK
from .sizes import format_size

_KEPT_CHARACTERS = 16 * 1024  # of the block's last output
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z_]\w*)")
_NO_INPUT = re.compile(r"EOFError: (?:EOF when reading a line|input\(\) is not available)")
_NO_INPUT_ADVICE = (
    "input() has nothing to read here: at a terminal, `cellblock repl` and `cellblock chat` with "
    "--executor session ask you"
)
_NO_NETWORK_ADVICE = (
    "blocks have no network here: --network allows it, --package NAME installs a package first"
)
# Packages whose distribution has another name than the module that is imported.
_DISTRIBUTIONS = {
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "pptx": "python-pptx",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# The limits in words, and the options that set them.
_LIMITS = {
    "wall_seconds": ("time limit", "--timeout"),
    "cpu_seconds": ("CPU time limit", ""),
    "memory_bytes": ("memory limit", "--memory"),
    "written_bytes": ("limit of written data", ""),
    "files": ("limit of new files", "--files"),
    "file_bytes": ("limit of one file's size", ""),
    "output_bytes": ("limit of output", ""),
}


class Advisor:
    """Collect what a block writes, and say which option would have helped it.

    limits        what limits the blocks
    has_network   False if the blocks have no network
    folder        the work folder, as the user wrote it
    """

    def __init__(self, limits: Limits, *, has_network: bool, folder: str = ".") -> None:
        self._limits, self._has_network, self._folder = limits, has_network, folder
        self._last_output = ""

    def add_output(self, text: str) -> None:
        """Add output of the block."""
        self._last_output = (self._last_output + text)[-_KEPT_CHARACTERS:]

    def advise(self, ended: Ended) -> Iterator[str]:
        """Yield one line for each problem that an option solves, and forget the block's output."""
        output, self._last_output = self._last_output, ""
        for name in missed_files(output, self._folder):
            yield self._missed_file(name)
        if ended.outcome == "ok":
            return
        if not self._has_network and LACKS_NETWORK.search(output):
            yield _NO_NETWORK_ADVICE
        for module in dict.fromkeys(_MISSING_MODULE.findall(output)):
            package = _DISTRIBUTIONS.get(module, module)
            yield f"{module} is not installed for the blocks: --package {package} installs it"
        if _NO_INPUT.search(output):
            yield _NO_INPUT_ADVICE

    def _missed_file(self, name: str) -> str:
        found = f"{name} is in the current folder, but blocks run in the folder {self._folder}"
        if exposure_of(".") is None:
            return f"{found}: --work-dir . gives them the current folder"
        return f"{found}: copy it there"

    def describe_limit(self, name: str) -> str:
        """Return the limit, its value with a unit, and its option. `name` is a field of `Limits`.

        Return "" if the limit has no name here or no value.
        """
        value = getattr(self._limits, name, None)
        if name not in _LIMITS or value is None:
            return ""
        words, option = _LIMITS[name]
        if name == "files":
            amount = str(value)
        else:
            amount = format_size(value) if name.endswith("_bytes") else f"{value:g} s"
        return f"the {words} of {amount}{option and f', see {option}'}"
