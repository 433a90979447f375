"""LlamaIndex's tool, whose token comes from the identity endpoint of this server."""

import sys
import tempfile
from pathlib import Path

from llama_index.tools.azure_code_interpreter import AzureCodeInterpreterToolSpec

URL, _ = sys.argv[1:]

folder = Path(tempfile.mkdtemp())
(folder / "a.txt").write_text("content")
tool = AzureCodeInterpreterToolSpec(pool_management_endpoint=URL, local_save_path=str(folder))
assert tool.code_interpreter("x = 41")["properties"]["status"] == "Success"
assert tool.code_interpreter("x + 1")["properties"]["result"] == 42
uploaded = tool.upload_file(local_file_path=str(folder / "a.txt"))
assert [each.filename for each in uploaded] == ["a.txt"]
assert [each.filename for each in tool.list_files()] == ["a.txt"]
read = tool.code_interpreter("open('/mnt/data/a.txt').read()")
assert read["properties"]["result"] == "content"
tool.download_file_to_local("a.txt", str(folder / "b.txt"))
assert (folder / "b.txt").read_text() == "content"
