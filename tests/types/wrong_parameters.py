"""Type checkers refuse each of these calls: a comment that ignores no error is one itself."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from cellblock import SandboxCommandLineCodeExecutor, sync

SandboxCommandLineCodeExecutor(workdir="x")  # type: ignore[call-arg]
sync.SandboxCommandLineCodeExecutor(workdir="x")  # type: ignore[call-arg]
sync.LocalCommandLineCodeExecutor(timeout="x")  # type: ignore[arg-type]
sync.DockerCommandLineCodeExecutor(picture="x")  # type: ignore[call-arg]
sync.SandboxSessionCodeExecutor(folder="x")  # type: ignore[call-arg]
sync.JupyterServerCodeExecutor()  # type: ignore[call-arg]
sync.SandboxSessionServer(package=["x"])  # type: ignore[call-arg]
sync.SandboxSessionServer().session(workdir="x")  # type: ignore[call-arg]
