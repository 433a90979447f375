"""Use a backend for deepagents as it does, and print what comes back."""

from cellblock import BoxGone, Sandbox, sync
from cellblock.integrations.deepagents import CellblockBackend

with sync.Sandbox(timeout=2) as sandbox:
    backend = CellblockBackend(sandbox)
    print(backend.id == sandbox.id)
    print(backend.execute("echo out; echo err >&2; kill -9 $$"))
    print(backend.execute("echo partial; sleep 100"))
    print(backend.execute("sleep 2.2; echo late", timeout=0))
    print([each.error for each in backend.upload_files([("in.txt", b""), ("/tmp/a", b"A")])])
    paths = ["/tmp/a", "/tmp/b", "/tmp", "/tmp/a/b", "a\0"]
    print([each.content or each.error for each in backend.download_files(paths)])
for refused in (lambda: backend.download_files(["/tmp/a"]), lambda: CellblockBackend(Sandbox())):
    try:
        refused()
    except (BoxGone, ValueError) as error:
        print(type(error).__name__, str(error)[:50])
