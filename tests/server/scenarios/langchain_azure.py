"""LangChain's Python and Bash tools."""

import io
import sys

from langchain_azure_dynamic_sessions import SessionsPythonREPLTool
from langchain_azure_dynamic_sessions.tools.sessions import SessionsBashTool

URL, KEY = sys.argv[1:]

tool = SessionsPythonREPLTool(pool_management_endpoint=URL, access_token_provider=lambda: KEY)
print(tool.execute("x = 41")["status"])
print(tool.execute("x + 1")["result"])
print(tool.invoke("print('hi')"))
failed = tool.execute("1/0")
print(failed["status"], "ZeroDivisionError" in failed["stderr"])
uploaded = tool.upload_file(data=io.BytesIO(b"hello"), remote_file_path="a b.txt")
print(uploaded.filename, uploaded.size_in_bytes, uploaded.full_path)
print([each.filename for each in tool.list_files()])
print(tool.download_file(remote_file_path="a b.txt").read())
print(tool.execute("open('/mnt/data/a b.txt').read()")["result"])
bash = SessionsBashTool(
    pool_management_endpoint=URL, access_token_provider=lambda: KEY, session_id=tool.session_id
)
done = bash.execute("cat '/mnt/data/a b.txt'; exit 3")
print(done["status"], done["result"]["stdout"])
