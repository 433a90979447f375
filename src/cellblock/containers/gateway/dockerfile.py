"""The Dockerfile and the programs of the Jupyter kernel gateway's image, as text."""

from __future__ import annotations

from ..seccomp_profile import IGNORED_ADVICE

FOLDER = "/opt/cellblock"
REQUIREMENTS = ("ipykernel>=6", "jupyter_kernel_gateway>=3")

# The packages are in a separate folder, so that those of the base image are not changed.
DOCKERFILE = f"""\
FROM {{base}}
COPY . {FOLDER}/
RUN python3 -m compileall -q -j 0 -x '/(jedi|lexers|styles|tests?)/' {FOLDER}/packages || true
ENV JUPYTER_PATH={FOLDER}/share
CMD ["python3", "{FOLDER}/gateway.py"]
"""

KERNEL_SPEC = {
    "argv": ["python3", f"{FOLDER}/kernel.py", "-f", "{connection_file}"],
    "display_name": "Python 3",
    "language": "python",
}

# Only the port forward connects to the gateway, so it listens on the container's own loopback.
GATEWAY = f"""\
import os, site, sys
# Python ignores the user's site-packages if it does not exist at the start, but pip installs there.
os.makedirs(site.getusersitepackages(), exist_ok=True)
token, port = os.environ.pop("TOKEN"), os.environ.pop("PORT")
for name in ("JUPYTER_TOKEN", "KG_AUTH_TOKEN"):
    os.environ.pop(name, None)
sys.path.insert(0, "{FOLDER}/packages")
from kernel_gateway.gatewayapp import KernelGatewayApp
settings = {{
    "KernelGatewayApp.ip": "127.0.0.1",
    "KernelGatewayApp.port": port,
    "KernelGatewayApp.port_retries": 0,
    "KernelGatewayApp.auth_token": token,
    "JupyterWebsocketPersonality.list_kernels": True,
    "KernelRestarter.time_to_dead": 1.0,
    # The rate limit drops output beyond a megabyte a second.
    "ZMQChannelsWebsocketConnection.limit_rate": False,
}}
KernelGatewayApp.launch_instance([f"--{{name}}={{value}}" for name, value in settings.items()])
"""

# A kernel, and a parent process that kills everything the kernel has started once the kernel exits.
# The image's own packages take precedence over those of the gateway.
KERNEL = f"""\
import ctypes, os, signal, sys
prctl = ctypes.CDLL(None).prctl
prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphaned descendants become children of this process
parent, kernel = os.getpid(), os.fork()
if kernel == 0:
    os.setsid()
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the OOM killer picks the kernel, not the gateway
    os.environ["JPY_PARENT_PID"] = str(parent)
    sys.path[0:1] = []
    sys.path.append("{FOLDER}/packages")
    from ipykernel.kernelapp import launch_new_instance
    launch_new_instance()
    os._exit(0)

def forward_signal(number, frame):
    try:
        os.killpg(kernel, number)
    except ProcessLookupError:
        pass

def children():
    with open(f"/proc/{{parent}}/task/{{parent}}/children") as file:
        return [int(word) for word in file.read().split()]

signal.signal(signal.SIGINT, forward_signal)
signal.signal(signal.SIGTERM, lambda number, frame: forward_signal(signal.SIGKILL, frame))
exited = 0
while exited != kernel:
    exited, status = os.wait()
while orphans := children():
    for process in orphans:
        os.kill(process, signal.SIGKILL)
    os.wait()
code = os.waitstatus_to_exitcode(status)
os._exit(code if code >= 0 else 128 - code)
"""

# Process 1. Its arguments are its modes, rlimits, and the command of the image. It reaps orphans,
# and exits with the command; in the mode "watch" also when its standard input is closed, that is,
# when its owner dies; in the mode "filtered" immediately if no system call filter is in force. The
# other processes of the container are killed when it exits.
INIT = f"""
import _thread, os, resource, signal, sys
if "filtered" in sys.argv[1] and "\\nSeccomp:\\t0\\n" in open("/proc/self/status").read():
    sys.exit({IGNORED_ADVICE!r})
for name, value in (item.split("=") for item in sys.argv[2].split()):
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    limit = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
    resource.setrlimit(kind, (limit, limit))
def watch():
    while os.read(0, 4096):
        pass
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if "watch" in sys.argv[1]:
    _thread.start_new_thread(watch, ())
no_input = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
child = os.posix_spawnp(sys.argv[3], sys.argv[3:], os.environ, file_actions=no_input)
while True:
    process, status = os.wait()
    if process == child:
        os._exit(os.waitstatus_to_exitcode(status) & 255)
"""

# One forwarded connection: copy standard input to a port on the container's loopback, and the
# port's data to standard output. Wait until the port is open.
PORT_FORWARD = """
import _socket, _thread, os, sys, time
deadline = time.monotonic() + float(sys.argv[2])
while True:
    connection = _socket.socket()
    try:
        connection.connect(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        if time.monotonic() > deadline:
            raise SystemExit(1)
        time.sleep(0.02)
def copy_input():
    while data := os.read(0, 65536):
        connection.sendall(data)
    os._exit(0)
_thread.start_new_thread(copy_input, ())
while data := connection.recv(65536):
    # Without an immediate ACK, the next response is delayed by 40 ms.
    connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_QUICKACK, 1)
    while data:
        data = data[os.write(1, data):]
os._exit(0)
"""
