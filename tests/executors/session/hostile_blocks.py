"""Code of blocks that kill or disturb their session."""

from __future__ import annotations

# Blocks that kill their process, with its exit code.
_EXITS: dict[str, tuple[int, str]] = {
    "os._exit": (3, "os._exit(3)"),
    "os._exit with 0": (0, "os._exit(0)"),
    "a segfault": (139, "ctypes.string_at(0)"),
    "abort": (134, "os.abort()"),
    "a killed own process": (137, "os.kill(os.getpid(), signal.SIGKILL)"),
    "a fatal signal": (143, "os.kill(os.getpid(), signal.SIGTERM); signal.pause()"),
    "an alarm": (142, "signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()"),
    "exec of another program": (7, "os.execv('/bin/sh', ['sh', '-c', 'echo other; exit 7'])"),
    "a stack that overflows": (
        139,
        "sys.setrecursionlimit(10**9)\ndef g(n): return list(map(g, [n]))\n"
        "threading.stack_size(1 << 16)\n"
        "t = threading.Thread(target=g, args=(0,)); t.start(); t.join()",
    ),
    "a thread that exits": (
        5,
        "t = threading.Thread(target=os._exit, args=(5,)); t.start(); signal.pause()",
    ),
    "a closed control stream": (6, "os.closerange(3, 100000); os._exit(6)"),
    "an exit from a handler": (
        139,
        "import atexit; atexit.register(os._exit, 9); import faulthandler; faulthandler._sigsegv()",
    ),
}
# Blocks that only their time limit ends, and those that need too much memory.
_TIMEOUTS = {
    "exec of a program that hangs": "os.execv('/bin/sleep', ['sleep', '100'])",
    "an interrupt that is ignored": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: signal.pause()"
    ),
    "an interrupt that is caught": (
        "while True:\n  try:\n    while True: signal.pause()\n  except BaseException: pass"
    ),
    "a call that does not return": (
        "signal.siginterrupt(2, False); ctypes.CDLL(None).read(os.pipe()[0], "
        "ctypes.create_string_buffer(1), 1)"
    ),
    "a blocked signal mask": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: signal.pause()"
    ),
}
_OUT_OF_MEMORY = {
    "memory": "y = []\nwhile True: y.append(bytearray(1 << 22))",
    "memory of children": (
        "signal.signal(2, signal.SIG_IGN)\nwhile True:\n  if os.fork() == 0:\n"
        "    y = bytearray(b'x') * (100 << 20); time.sleep(60)\n  time.sleep(0.01)"
    ),
}
# The code of a block that kills its process, with its exit code and outcome.
ENDINGS: dict[str, tuple[str, int, str]] = {
    **{name: (code, exit, "error" if exit else "ok") for name, (exit, code) in _EXITS.items()},
    **{name: (code, 124, "timeout") for name, code in _TIMEOUTS.items()},
    **{name: (code, 137, "out_of_memory") for name, code in _OUT_OF_MEMORY.items()},
}

# Code that does not kill its process. The session continues with the state before or after it. The
# first ones of each table are those that differ most.

# The next block does not notice them.
DISTURBANCES: dict[str, str] = {
    "closed descriptors": "os.closerange(0, 100000)",
    "all killed": "os.kill(-1, signal.SIGKILL)",
    "every process number stopped": (
        "for n in range(2, 3000):\n  try:\n"
        "    n != os.getpid() and os.kill(n, signal.SIGSTOP)\n  except OSError: pass"
    ),
    "children never waited for": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "streams replaced": (
        "class S:\n  def write(self, t): 1 / 0\n  def flush(self): 1 / 0\n"
        "sys.stdout = sys.stderr = S()"
    ),
    "threads without end": (
        "try:\n  while True: threading.Thread(target=time.sleep, args=(60,), "
        "daemon=True).start()\nexcept RuntimeError: pass"
    ),
    "a thread that keeps printing": (
        "def p():\n  while True: os.write(1, b'x' * 4096)\n"
        "threading.Thread(target=p, daemon=True).start()"
    ),
    "a removed current folder": (
        "import shutil; os.mkdir('/tmp/d'); os.chdir('/tmp/d'); os.rmdir('/tmp/d')"
    ),
    "a forked session that replies": "os.fork(); os.fork(); print('twice')",
    "a raised OOM score": "open('/proc/self/oom_score_adj', 'w').write('1000')",
    "an interrupt to itself, late": (
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()"
    ),
    "closed descriptors, all": (
        "os.system('true'); [os.close(int(n)) for n in os.listdir('/proc/self/fd') if n != '3']"
    ),
    "descriptors overwritten": (
        "n = os.open('/dev/null', 2)\nfor t in range(1024):\n  if t != n: os.dup2(n, t)"
    ),
    "descriptors that are full": (
        "os.set_blocking(1, False); [os.set_blocking(n, "
        "False) for n in range(700) if os.path.exists(f'/proc/self/fd/{n}')]"
    ),
    "all killed, by a child": "subprocess.Popen(['sh', '-c', 'kill -9 -1']); time.sleep(0.3)",
    "the group killed": "os.killpg(0, signal.SIGKILL)",
    "the parent killed": "os.kill(os.getppid(), signal.SIGKILL); os.kill(1, signal.SIGKILL)",
    "children killed": (
        "import glob\nfor n in os.listdir('/proc'):\n"
        "  if n.isdigit() and int(n) not in (1, os.getpid()): os.kill(int(n), 9)"
    ),
    "every process number killed": (
        "for n in range(2, 3000):\n  try:\n    n != os.getpid() and os.kill(n, 9)\n"
        "  except OSError: pass"
    ),
    "children waited for": "try:\n  while True: os.wait()\nexcept ChildProcessError: pass",
    "children waited for, in C": (
        "libc = ctypes.CDLL(None)\nwhile libc.waitpid(-1, None, 1) > 0: pass"
    ),
    "streams that are None": "sys.stdout = sys.stderr = sys.__stdout__ = sys.stdin = None",
    "streams closed": "sys.stdout.close(); sys.stderr.close()",
    "a forked session": "os.fork()",
    "a full /tmp": (
        "n = 0\ntry:\n  while True: open(f'/tmp/{n}', 'wb').write(bytes(1 << 22)); n += 1\n"
        "except OSError: pass"
    ),
    "signals to itself, late": "signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "an interrupt to itself": "os.kill(os.getpid(), signal.SIGINT)",
}

# They last until the time limit.
LASTING_DISTURBANCES: dict[str, str] = {
    "own process stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "all stopped": "os.kill(-1, signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)",
    "a fork bomb": "while True:\n  try: os.fork()\n  except OSError: pass",
    "a fork bomb of daemons": (
        "while True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass"
    ),
    "no CPU left": (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass"
    ),
}

# The next block can notice them: it fails with an error that says why.
VISIBLE_DISTURBANCES: dict[str, str] = {
    "builtins removed": (
        "import builtins\nfor n in ('len', 'print', 'isinstance', '__import__', "
        "'open'): delattr(builtins, n)"
    ),
    "Cellblock's objects broken": (
        "import gc\nfor o in gc.get_objects():\n"
        "  if type(o).__name__ in ('Control', 'Session', 'Shell'): vars(o).clear()"
    ),
    "a tracer": "sys.settrace(lambda *_: 1 / 0); sys.setprofile(lambda *_: 1 / 0)",
    "a resource limit": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))"
    ),
    "modules removed": (
        "for n in list(sys.modules): n.startswith(('IPython', 'cellblock', 'json', "
        "'os')) and sys.modules.pop(n)"
    ),
    "the shell broken": "get_ipython().run_cell = get_ipython().run_cell_async = None",
    "the shell's hooks broken": (
        "get_ipython().display_formatter = get_ipython().displayhook = None\n5"
    ),
    "Cellblock's modules broken": (
        "for n, m in list(sys.modules.items()):\n"
        "  if 'cellblock' in n or n in ('json', 'socket'): vars(m).clear()"
    ),
    "no descriptors left": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "interpreter state": (
        "sys.setrecursionlimit(60); gc = __import__('gc'); gc.disable(); gc.set_threshold(1)"
    ),
}
