"""What is in our image of a Jupyter kernel gateway: its Dockerfile and programs, as text. They run in the container."""

from __future__ import annotations

FOLDER = "/opt/cellblock"
REQUIREMENTS = ("ipykernel>=6", "jupyter_kernel_gateway>=3")

# The packages lie apart, so that those of the base image stay as they are.
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

# The relay is the only one who asks, so the container's own loopback will do.
GATEWAY = f"""\
import os, site, sys
os.makedirs(site.getusersitepackages(), exist_ok=True)  # else what pip puts there cannot be imported
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
    "ZMQChannelsWebsocketConnection.limit_rate": False,  # else output beyond a megabyte a second is dropped
}}
KernelGatewayApp.launch_instance([f"--{{name}}={{value}}" for name, value in settings.items()])
"""

# A kernel, and above it a process that ends with the kernel all that the kernel started: nothing of a block is left running.
# Of the image's own packages and ours, its own come first.
KERNEL = f"""\
import ctypes, os, signal, sys
prctl = ctypes.CDLL(None).prctl
prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what loses its parent becomes a child of this process
above, below = os.getpid(), os.fork()
if below == 0:
    os.setsid()
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when memory runs out, this process goes and not the gateway
    os.environ["JPY_PARENT_PID"] = str(above)
    sys.path[0:1] = []
    sys.path.append("{FOLDER}/packages")
    from ipykernel.kernelapp import launch_new_instance
    launch_new_instance()
    os._exit(0)

def pass_on(number, frame):
    try:
        os.killpg(below, number)
    except ProcessLookupError:
        pass

def children():
    with open(f"/proc/{{above}}/task/{{above}}/children") as file:
        return [int(word) for word in file.read().split()]

signal.signal(signal.SIGINT, pass_on)
signal.signal(signal.SIGTERM, lambda number, frame: pass_on(signal.SIGKILL, frame))
ended = 0
while ended != below:
    ended, status = os.wait()
while left := children():
    for process in left:
        os.kill(process, signal.SIGKILL)
    os.wait()
code = os.waitstatus_to_exitcode(status)
os._exit(code if code >= 0 else 128 - code)
"""

# Process 1, given rlimits and the command of the image: reaps, and ends the container with the command, or with us: when our
# end of its standard input closes. The kernel ends all others with it.
INIT = """
import _thread, os, resource, signal, sys
for name, most in (item.split("=") for item in sys.argv[2].split()):
    kind = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(kind)[1]
    most = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
    resource.setrlimit(kind, (most, most))
def watch():
    while os.read(0, 4096):
        pass
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if sys.argv[1] == "watch":
    _thread.start_new_thread(watch, ())
nothing = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
child = os.posix_spawnp(sys.argv[3], sys.argv[3:], os.environ, file_actions=nothing)
while True:
    process, status = os.wait()
    if process == child:
        os._exit(os.waitstatus_to_exitcode(status) & 255)
"""

# One connection: its standard input and output to a port of the container's loopback and back. Waits for the port to open.
RELAY = """
import _socket, _thread, os, sys, time
until = time.monotonic() + float(sys.argv[2])
while True:
    end = _socket.socket()
    try:
        end.connect(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        if time.monotonic() > until:
            raise SystemExit(1)
        time.sleep(0.02)
def forth():
    while data := os.read(0, 65536):
        end.sendall(data)
    os._exit(0)
_thread.start_new_thread(forth, ())
while data := end.recv(65536):
    end.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_QUICKACK, 1)  # else the next answer waits 40 ms for it
    while data:
        data = data[os.write(1, data):]
os._exit(0)
"""
