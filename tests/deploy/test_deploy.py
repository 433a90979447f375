"""The files of deploy/: the image is built and run, with the options of the page and manifest."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from tests.containers import docker_engine
from tests.server.serving import serving

ROOT = Path(__file__).parents[2]
yaml: Any = importlib.import_module("yaml")  # which has no types
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
# A client in the container: prints the answer of a run in a new session.
RUN = """
import json, sys
from urllib.request import Request, urlopen
def call(path, body):
    headers = {"Authorization": "Bearer " + sys.argv[1], "Content-Type": "application/json"}
    request = Request("http://127.0.0.1:8000/v1" + path, json.dumps(body).encode(), headers)
    return json.load(urlopen(request))
name = call("/sessions", {})["id"]
print(call(f"/sessions/{name}/runs", {"code": "print(6 * 7)"})["result"]["output"])
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Yield the image, which is built without the network, from wheels: none can be pulled here."""
    engine, context = docker_engine.shared_engine(), tmp_path_factory.mktemp("context")
    for name in (".dockerignore", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, context)
    shutil.copytree(ROOT / "src", context / "src", ignore=shutil.ignore_patterns("__pycache__"))
    _download_wheels(context)
    reference = f"cellblock-test-deploy:{uuid.uuid4().hex[:12]}"
    base = engine.image_with_files("pip", engine.test_image("python"), _pip_files)
    options = "PIP_OPTIONS=--no-index --find-links /src/wheels"
    build = ["build", "--network=none", f"--file={ROOT / 'deploy' / 'Dockerfile'}"]
    build += [f"--build-arg=BASE={base}", "--build-arg", options, f"--tag={reference}"]
    engine.docker(*build, str(context))
    yield reference
    engine.docker("rmi", reference)


def _download_wheels(context: Path) -> None:
    """Put the wheels of the server, for Debian's Python, and of what builds it into a folder."""
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    wheels, pip = context / "wheels", [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, context], check=True)
    (package,) = wheels.glob("cellblock-*.whl")
    required = tuple(_build_requirements())
    command = [*pip, "download", "--only-binary=:all:", "--python-version", version]
    subprocess.run(
        [*command, "--dest", wheels, f"{package}[server,mcp]", *required],
        check=True,
        capture_output=True,
    )
    package.unlink()  # the Dockerfile builds it
    shutil.rmtree(context / "build", ignore_errors=True)


def _build_requirements() -> Iterable[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]


def _pip_files() -> dict[str, Path]:
    files = distribution("pip").files or ()
    return {
        f"usr/lib/python3/dist-packages/{file}": Path(str(file.locate()))
        for file in files
        if ".." not in file.parts and "__pycache__" not in file.parts
    }


@contextmanager
def running(image: str, options: Iterable[str]) -> Generator[str]:
    """Yield the name of a container of the server that answers requests."""
    engine, name = docker_engine.shared_engine(), f"cellblock-test-deploy-{uuid.uuid4().hex[:12]}"
    engine.docker("run", "--detach", "--network=none", f"--name={name}", *options, image)
    try:
        _wait_until_ready(name)
        yield name
    finally:
        engine.docker("rm", "--force", "--volumes", name)


def _wait_until_ready(name: str) -> None:
    engine = docker_engine.shared_engine()
    while True:  # the time limit of the test ends it
        state = json.loads(engine.docker("inspect", "--format={{json .State}}", name))
        assert state["Running"], engine.docker("logs", name)
        if state["Health"]["Status"] == "healthy":
            return
        time.sleep(0.2)


def check_server(name: str) -> None:
    """Make a key, run code, and start the server again: it knows the key. Then kill it."""
    docker = docker_engine.shared_engine().docker
    assert "The full sandbox can be started here." in docker("exec", name, "cellblock", "doctor")
    key = docker("exec", name, "cellblock", "keys", "add", "me").split()[-1]
    assert docker("exec", name, "python3", "-c", RUN, key) == "42"
    docker("stop", name)
    assert docker("inspect", "--format={{.State.ExitCode}}", name) == "0"
    docker("start", name)
    _wait_until_ready(name)
    assert docker("exec", name, "python3", "-c", RUN, key) == "42"
    # `--package` installs programs here.
    docker("exec", name, "sh", "-c", "mkdir ~/.cache && cp /bin/true ~/.cache && ~/.cache/true")
    docker("kill", name)
    docker("start", name)
    _wait_until_ready(name)
    folders = docker("exec", name, "sh", "-c", "ls /var/lib/cellblock").split()
    assert sum(folder.startswith("cellblock-") for folder in folders) == 1, folders
    assert '"server": "cellblock:8000"' in docker("exec", name, "cellblock", "audit")
    assert docker("inspect", "--format={{.Config.StopTimeout}}", name) == "45"


def test_the_health_check_finds_the_port_and_protocol_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (check,) = re.findall("^HEALTHCHECK .*? CMD (.*)", DOCKERFILE, re.MULTILINE)
    command = [sys.executable, *json.loads(check)[1:]]
    with serving(tmp_path, "--self-signed"):
        assert subprocess.run(command, check=False).returncode == 0
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0


def test_the_build_lets_pip_trust_a_certificate_of_the_folder() -> None:
    (setting,) = re.findall("^RUN (PIP_CERT=.*?) python3 -m pip install", DOCKERFILE, re.MULTILINE)
    assert "!*.pem" in (ROOT / ".dockerignore").read_text().splitlines()
    for given, expected in {"": "\n", "ca.pem": "/src/ca.pem\n"}.items():
        script = f"CERTIFICATE={given}; {setting} sh -c 'echo $PIP_CERT'"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == expected


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.network
def test_image_runs_with_the_options_of_the_page(image: str) -> None:
    (command,) = re.findall(r"docker run (.*?) cellblock\n", PAGE.replace("\\\n", " "))
    options = re.sub(r"--(name|publish|volume) \S+|--detach", "", command)
    with running(image, shlex.split(options)) as name:
        check_server(name)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.network
def test_image_runs_with_the_options_of_the_manifest(image: str) -> None:
    (pod,) = [
        each["spec"]["template"]["spec"] for each in manifest() if each["kind"] == "Deployment"
    ]
    with running(image, docker_options(pod)) as name:
        check_server(name)


def docker_options(pod: dict[str, Any]) -> list[str]:
    """Return the options of `docker run` that mean the same as those of the manifest."""
    (container,) = pod["containers"]
    security = {**pod["securityContext"], **container["securityContext"]}
    assert security.pop("seccompProfile") == {"type": "Unconfined"}
    assert (security.pop("procMount"), pod["hostUsers"]) == ("Unmasked", False)
    assert security.pop("runAsNonRoot")
    assert security.pop("allowPrivilegeEscalation") is False
    assert security.pop("readOnlyRootFilesystem")
    assert security.pop("capabilities") == {"drop": ["ALL"]}
    user, group = security.pop("runAsUser"), security.pop("runAsGroup")
    assert security.pop("fsGroup") == group
    assert not security, "options that the test does not translate"
    return [
        "--security-opt=seccomp=unconfined",
        "--security-opt=systempaths=unconfined",
        "--security-opt=no-new-privileges",
        "--cap-drop=ALL",
        "--read-only",
        f"--user={user}:{group}",
        f"--hostname={pod['hostname']}",
        f"--stop-timeout={pod['terminationGracePeriodSeconds']}",
        *(
            f"--tmpfs={each['mountPath']}:mode=1777,exec"
            for each in container["volumeMounts"]
            if each["name"] != "state"
        ),
    ]


def manifest() -> list[dict[str, Any]]:
    """Return the objects of the manifest."""
    return list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))


def test_manifest_names_what_the_image_and_server_have() -> None:
    (pod,) = [
        each["spec"]["template"]["spec"] for each in manifest() if each["kind"] == "Deployment"
    ]
    (container,) = pod["containers"]
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    assert f"USER {pod['securityContext']['runAsUser']}:" in DOCKERFILE
    assert "VOLUME /var/lib/cellblock\n" in DOCKERFILE


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_knows_all_options_of_the_unit(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "cellblock.service").read_text()
    unit = tmp_path / "cellblock.service"
    unit.write_text(text.replace("/opt/cellblock/bin/cellblock", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
