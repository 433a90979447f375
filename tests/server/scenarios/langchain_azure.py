"""LangChain's Python and Bash tools."""

import io
import json
import sys

from langchain_azure_dynamic_sessions import SessionsPythonREPLTool
from langchain_azure_dynamic_sessions.tools.sessions import SessionsBashTool

URL, KEY = sys.argv[1:]

tool = SessionsPythonREPLTool(pool_management_endpoint=URL, access_token_provider=lambda: KEY)
assert tool.execute("x = 41")["status"] == "Success"
assert tool.execute("x + 1")["result"] == 42
assert json.loads(tool.invoke("print('hi')")) == {"result": "", "stdout": "hi\n", "stderr": ""}
failed = tool.execute("1/0")
assert (failed["status"], "ZeroDivisionError" in failed["stderr"]) == ("Failure", True)
uploaded = tool.upload_file(data=io.BytesIO(b"hello"), remote_file_path="a b.txt")
assert (uploaded.filename, uploaded.size_in_bytes) == ("a b.txt", 5)
assert uploaded.full_path == "/mnt/data/a b.txt"
assert [each.filename for each in tool.list_files()] == ["a b.txt"]
assert tool.download_file(remote_file_path="a b.txt").read() == b"hello"
assert tool.execute("open('/mnt/data/a b.txt').read()")["result"] == "hello"
bash = SessionsBashTool(
    pool_management_endpoint=URL, access_token_provider=lambda: KEY, session_id=tool.session_id
)
done = bash.execute("cat '/mnt/data/a b.txt'; exit 3")
assert (done["status"], done["result"]["stdout"]) == ("3", "hello")
