"""Write the Python examples of README.md to the file that is named, for type checkers."""

import sys
from pathlib import Path

from tests.docs.markdown_pages import ROOT, blocks

examples = [block.code for block in blocks(ROOT / "README.md") if block.language == "python"]
header = "# pyright: reportDuplicateImport=false\n"  # each example can be pasted without the others
Path(sys.argv[1]).write_text(header + "\n".join(examples), encoding="utf-8")
