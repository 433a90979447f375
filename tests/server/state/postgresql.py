"""Start PostgreSQL with data of its own, on a Unix socket only, as a user without rights."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import psycopg

USER, PASSWORD = "cellblock", "a secret/@:%"  # what must be quoted in a URL
QUOTED_PASSWORD = "a%20secret%2F%40%3A%25"
# Debian has each major version in a folder of its own.
_PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/bin"))
_ACCOUNT = "nobody"  # initdb needs an account, and refuses root
_OPTIONS = "-c listen_addresses= -c fsync=off -c shared_buffers=16MB -c max_connections=60"


class PostgresServer:
    """A server, once it is started. `folder` has its data and its socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        """Return the URL of a database, with the password."""
        return f"postgresql://{USER}:{QUOTED_PASSWORD}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Execute a statement without parameters, and without a transaction."""
        with self._connect(database) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        import psycopg

        self.process = _start(self.folder)
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server, if it runs, immediately."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def _connect(self, database: str) -> psycopg.Connection:
        import psycopg

        return psycopg.connect(
            host=str(self.folder), dbname=database, user=USER, password=PASSWORD, autocommit=True
        )


@contextlib.contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """Yield a server. Skip the test where PostgreSQL is missing."""
    _require()
    # A socket's path has at most 107 characters, more than pytest's folders leave.
    folder = Path(tempfile.mkdtemp(prefix="cellblock-pg-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _ACCOUNT)
        _initialize(folder)
        server = PostgresServer(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _require() -> None:
    missing = ""
    if not (_PROGRAMS / "postgres").exists():
        missing = "PostgreSQL is missing: apt-get install postgresql"
    elif os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError:
            missing = "this user has no account, which initdb needs"
    if missing and os.environ.get("CI"):
        raise RuntimeError(missing)
    if missing:
        pytest.skip(missing)


def _switch_user() -> list[str]:
    """Return what starts a program without root's rights, and ends it with this process."""
    user = [f"--reuid={_ACCOUNT}", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, "--pdeathsig=INT"]


def _initialize(folder: Path) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)  # in a folder that only its user can enter
    options = ["-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
    argv = [str(_PROGRAMS / "initdb"), "-D", str(folder / "data"), *options, f"--pwfile={secret}"]
    done = subprocess.run(
        [*_switch_user(), *argv], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _start(folder: Path) -> subprocess.Popen[bytes]:
    argv = [str(_PROGRAMS / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*_switch_user(), *argv, *_OPTIONS.split()], cwd="/", stdout=log, stderr=log
        )
