"""Programs and Python features work in the sandbox: compilers, git, Node, threads, sockets."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import Policy
from cellblock.sync import SyncCodeExecutor
from tests.sandbox.probes import checked_output, output_of, sandbox

pytestmark = pytest.mark.depends_on_user


@pytest.fixture(scope="module")
def executor() -> Iterator[SyncCodeExecutor]:
    with sandbox() as sandboxed:
        yield sandboxed


# required program: (language, code, expected output)
PROGRAMS = {
    "gcc": (
        "sh",
        """
cat > hello.c <<'END'
#include <stdio.h>
#include <threads.h>
static int work(void *in) { *(int *)in = 42; return 0; }
int main(void) { thrd_t t; int n = 0; thrd_create(&t, work, &n); thrd_join(t, 0);
    printf("%d\\n", n); return 0; }
END
gcc -O1 -o hello hello.c -pthread && ./hello
""",
        "42",
    ),
    "git": (
        "sh",
        """
git -c init.defaultBranch=main init -q repository && cd repository
git config user.email cell@localhost && git config user.name Cell
echo one > file && git add file && git commit -q -m First
git worktree add -q ../other 2>&1 | grep -v Preparing; git -C ../other log --format=%s
git clone -q . ../copy && git -C ../copy gc -q \\
  && git -C ../copy fsck 2>/dev/null && cat ../copy/file
""",
        "First\none",
    ),
    "node": (
        "javascript",
        """
const { Worker } = require("worker_threads"), net = require("net"), os = require("os");
require("fs").writeFileSync(os.tmpdir() + "/x", "x");
const server = net.createServer(s => s.end("hello")).listen(0, "127.0.0.1", () =>
  net.connect(server.address().port, "127.0.0.1").on("data", d => {
    server.close();
    new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true })
      .on("message", n => {
        const child = require("child_process").execSync("echo child").toString().trim();
        console.log(d.toString(), n, child);
      });
  }));
""",
        "hello 42 child",
    ),
    "tar": (
        "sh",
        (
            "mkdir t && echo x > t/f && ln -s f t/l && tar czf t.tgz t && rm -r t && "
            "tar xzf t.tgz && cat t/l"
        ),
        "x",
    ),
    "make": (
        "sh",
        (
            "printf 'all: a b\\na b:\\n\\t@echo $@\\n' > Makefile && make -s -j2 | sort | tr '\\n"
            "' ' '"
        ),
        "a b",
    ),
    "bash": (
        "bash",
        ("coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} a; cat <(echo $a) - <<<there"),
        "hi\nthere",
    ),
    "lscpu": ("sh", "lscpu --parse=core | tail -n1 | tr -d 0-9", ""),
    # By its path, because other programs have the same name.
    "/usr/bin/convert": (
        "sh",
        ("/usr/bin/convert -size 9x9 xc:red r.png && /usr/bin/convert r.png -format %m info:"),
        "PNG",
    ),
    "java": (
        "sh",
        """
echo "class A { public static void main(String[] a) { System.out.println(42); } }" > A.java
java A.java
""",
        "42",
    ),
    "pdflatex": (
        "sh",
        """
pdflatex -interaction=batchmode '\\documentclass{article}\\begin{document}a\\end{document}' > log
ls *.pdf
""",
        "texput.pdf",
    ),
    "Rscript": ("sh", "Rscript -e 'cat(median(c(1, 4, 9)))'", "4"),
    "sh": ("sh", "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin", "out\nerr"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_works(program: str, executor: SyncCodeExecutor) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    language, code, expected = PROGRAMS[program]
    assert checked_output(executor, code, language) == expected


THREADS = """
import numpy, threading
a = numpy.ones((400, 400))
found = []
threads = [threading.Thread(target=lambda: found.append((a @ a).sum())) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(found), int(found[0]), numpy.linalg.svd(a)[1][0].round())
"""
PROCESSES = """
import multiprocessing
from multiprocessing import shared_memory

def square(n):
    return n * n

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(4)))
    with multiprocessing.Manager() as manager:
        shared = manager.dict(x=1)
        assert shared["x"] == 1
        with multiprocessing.Lock(), multiprocessing.Semaphore(2):
            pass
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    memory.buf[0] = 7
    second = shared_memory.SharedMemory(memory.name)
    print(second.buf[0])
    second.close(); memory.close(); memory.unlink()
"""
SERVER = """
import asyncio, socket

async def greet(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def main():
    for host in ("127.0.0.1", "localhost"):
        async with await asyncio.start_server(greet, host, 0) as server:
            reader, writer = await asyncio.open_connection(host, server.sockets[0].getsockname()[1])
            writer.write(b"hello\\n")
            print(await reader.readline())
            writer.close()
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0], socket.gethostbyname(socket.gethostname()))

asyncio.run(main())
"""
PLOT = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plot
plot.plot([1, 4, 9]); plot.title("a title"); plot.savefig("plot.png")
print(open("plot.png", "rb").read(4))
"""
LARGE = """
import os, tempfile
with tempfile.TemporaryFile() as file:
    for _ in range(200):
        file.write(bytes(1 << 20))
    print(file.tell() >> 20, os.path.dirname(tempfile.mkdtemp()))
"""
WORLD = """
import datetime, locale, os, ssl, zoneinfo, time
summer = datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
print(summer.utcoffset(), time.strftime("%Z") != "")
print(locale.setlocale(locale.LC_ALL, ""), "ä€".encode().decode(), os.fsencode("ä"))
"""
CERTIFICATES = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 50)"
DEVICES = """
import os, random, secrets
print(open("/dev/zero", "rb").read(3), len(os.urandom(9)), open("/dev/null", "w").write("x"))
is_empty = open("/dev/fd/0").read() == ""
print(len(open("/dev/random", "rb").read(4)), os.path.exists("/dev/stdin"), is_empty)
try:
    open("/dev/full", "w").write("x" * 100000)
except OSError as error:
    print(error.strerror)
open("/dev/stdout", "w").write("out\\n")
"""
WATCHING = """
import ctypes, os, resource, select, signal, sqlite3, subprocess, pwd
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(0); assert libc.inotify_add_watch(watch, b"/workspace", 0x100) > 0
open("/workspace/new", "w").close(); assert select.select([watch], [], [], 5)[0]
epoll = select.epoll(); timer = os.pidfd_open(os.getpid())
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); os.nice(1)
os.sched_setaffinity(0, os.sched_getaffinity(0))
table = sqlite3.connect("/workspace/base"); table.execute("pragma journal_mode=wal")
table.execute("create table t(x)")
os.chmod("/workspace/base", 0o600); os.mkfifo("/workspace/pipe")
os.link("/workspace/base", "/workspace/second")
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
os.killpg(child.pid, signal.SIGKILL)
print(child.wait(), pwd.getpwuid(os.getuid()).pw_name, os.path.expanduser("~"))
"""
TERMINAL = """
import os, pty, sys
inner = "import os; print(os.isatty(0), os.ttyname(1), os.listdir('/dev/pts')); "
inner += "open('/dev/tty', 'w').write('to it')"
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-c", inner])
output = b""
try:  # pty.spawn would drop output that is unwritten when its program ends
    while data := os.read(terminal, 1000):
        output += data
except OSError:
    pass  # the end of the terminal
print(output.decode())
"""
PYTHON = {
    "threads of numpy": (("numpy",), THREADS, "4 64000000 400.0"),
    "processes": ((), PROCESSES, None),
    "a server": ((), SERVER, "b'hello\\n'\nb'hello\\n'\nb'child\\n' 127.0.0.1"),
    "a figure": (("matplotlib",), PLOT, "b'\\x89PNG'"),
    "a large temporary file": ((), LARGE, "200 /tmp"),
    "times and languages": ((), WORLD, "2:00:00 True\nC.UTF-8 ä€ b'\\xc3\\xa4'"),
    "devices": ((), DEVICES, "b'\\x00\\x00\\x00' 9 1\n4 True True\nNo space left on device\nout"),
    "a terminal": ((), TERMINAL, "True /dev/pts/0 ['0', 'ptmx']\r\nto it"),
    "what the kernel offers": ((), WATCHING, "-9 cell /home/cell"),
}


@pytest.mark.parametrize("name", PYTHON)
def test_python_does(name: str, executor: SyncCodeExecutor) -> None:
    modules, code, expected = PYTHON[name]
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    output = checked_output(executor, code)
    if expected is not None:
        assert output == expected
    else:
        assert output.endswith("\n7"), output
        assert output.count("[0, 1, 4, 9]") == 3


def test_certificates_are_available(executor: SyncCodeExecutor) -> None:
    here = subprocess.run(
        [sys.executable, "-c", CERTIFICATES], capture_output=True, text=True, check=True
    ).stdout
    if here.strip() != "True":
        pytest.skip("this machine has no certificates")
    assert checked_output(executor, CERTIFICATES) == "True"


USE = "import made_here; print(made_here.value)"


def test_module_written_into_the_environment_is_visible_to_its_executor_only(
    executor: SyncCodeExecutor,
) -> None:
    install = """
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
case $site in /opt/env/*) echo 'value = 42' > "$site/made_here.py";; *) echo "$site"; exit 1;; esac
"""
    checked_output(executor, install, "sh")
    assert checked_output(executor, USE) == "42"
    with sandbox() as other:
        assert "No module named 'made_here'" in output_of(other, USE)
    executor.restart()
    assert "No module named 'made_here'" in output_of(executor, USE)


@pytest.mark.network
def test_pip_installs_for_its_executor_only(tmp_path: Path) -> None:
    use = "import toolz; print(toolz.identity(2), toolz.__file__.split('/lib/')[0])"
    network = Policy(network="host")
    with sandbox(tmp_path, policy=network) as installing, sandbox(policy=network) as other:
        if "No module named 'toolz'" not in output_of(installing, use):
            pytest.skip("toolz is installed here already")
        checked_output(installing, "pip install --no-cache-dir toolz", "sh")
        assert checked_output(installing, use) == "2 /opt/env"
        assert "No module named 'toolz'" in output_of(other, use)


def test_cpus_and_power_supplies_are_listed(executor: SyncCodeExecutor) -> None:
    code = (
        "import os\nprint(sorted(os.listdir('/sys/devices/system/cpu'))[0], "
        "os.listdir('/sys/class/power_supply'))"
    )
    assert checked_output(executor, code) == "cpu0 []"
