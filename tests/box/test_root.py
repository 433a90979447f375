"""Commands of a box have a root file system of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from cellblock import ImageUnusable, Mount, Policy, Sandbox
from tests.containers import docker_engine
from tests.executors.programs import run_as_plain_user
from tests.sandbox.images.image_builder import file, layer, write_layout
from tests.sandbox.images.small_root import make_root

pytestmark = [pytest.mark.depends_on_user, pytest.mark.usefixtures("needs_sandbox")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("root"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cellblock" / "roots"


async def run(box: Sandbox, command: str) -> str:
    """Return the output of a command that succeeds."""
    result = await box.exec(command)
    assert result.exit_code == 0, result.stderr_text
    return result.stdout_text


async def test_commands_see_the_root_and_change_their_own_layer_only(root: Path) -> None:
    before = sorted(os.listdir(root / "etc"))
    async with Sandbox(root=root) as box, Sandbox(root=root) as other:
        assert await run(box, "cat /etc/own") == "of this root\n"
        assert (await box.exec(["ls", "/usr/share"])).exit_code == 2
        await run(
            box, "echo changed > /etc/own; touch /etc/new; rm -r /bin/touch /usr/bin/touch || true"
        )
        assert await run(box, "cat /etc/own; ls /etc/new") == "changed\n/etc/new\n"
        assert (await box.exec(["touch", "x"])).exit_code == 127
        assert await run(other, "cat /etc/own; touch /etc/own") == "of this root\n"
    assert sorted(os.listdir(root / "etc")) == before
    assert (root / "etc" / "own").read_text() == "of this root\n"


async def test_files_and_shells_are_in_the_root_too(root: Path) -> None:
    async with Sandbox(root=root) as box:
        assert await box.files.read_text("/etc/own") == "of this root\n"
        await box.files.write("/srv/new", "data")
        async with box.shell(program="sh") as shell:
            assert (await shell.run("cd /srv && cat new")).stdout_text == "data"
            assert (await shell.run("pwd")).stdout_text == "/srv\n"


async def test_the_live_python_stays_in_the_sandbox_and_shares_the_work_folder(
    root: Path, tmp_path: Path
) -> None:
    async with Sandbox(root=root, work_dir=tmp_path) as box:
        code = """
    import os
    open('a', 'w').write('a')
    open('/tmp/b', 'w').write('b')
    print(os.path.exists('/etc/own'))
    """
        assert (await box.run_code(code)).output == "False\n"
        assert await run(box, "pwd; cat a /tmp/b; echo c > c; id -un") == "/workspace\nabcell\n"
        assert (
            await box.run_code("print(open('c').read(), os.stat('c').st_uid)")
        ).output == "c\n 1000\n"
        assert (tmp_path / "c").read_text() == "c\n"


async def test_the_image_says_variables_and_where_commands_start(
    root: Path, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "root.tar", "w") as archive:
        archive.add(root, ".")
    data = (tmp_path / "root.tar").read_bytes()
    source = write_layout(
        tmp_path / "image",
        data,
        Env=["GREETING=hello world", "PATH=/bin:/usr/bin"],
        WorkingDir="/app",
        User="root",  # which has no effect
    )
    async with Sandbox(root=source) as box:
        assert (
            await run(box, 'pwd; echo "$GREETING" $PATH; id -un')
            == "/app\nhello world /bin:/usr/bin\ncell\n"
        )
        assert box.inner_work_dir == "/app"
        result = await box.exec(["env"], env={"GREETING": "other"})
        assert "GREETING=other\n" in result.stdout_text
        assert "VIRTUAL_ENV" not in result.stdout_text
        assert (await box.exec(["pwd"], cwd="..")).stdout_text == "/\n"
        await box.files.write("a/b", "data")
        assert await run(box, "cat /app/a/b") == "data"
        assert await box.files.resolve("a") == "/app/a"


async def test_links_of_the_root_lead_nowhere_but_into_it(root: Path, tmp_path: Path) -> None:
    """The folder `/opt/cellblock` is one of the sandbox."""

    source = shutil.copytree(root, tmp_path / "root", symlinks=True)
    for name, text in (("a", "/opt"), ("b", "../../../../opt")):
        (source / name).symlink_to(text)
    for folder in ("tmp", "workspace", "proc", "home"):  # mount points that are links
        (source / folder).symlink_to("/opt")
    async with Sandbox() as box:
        assert "cellblock" in await run(box, "ls /opt")
    async with Sandbox(root=source) as box:
        for name in ("a", "b"):
            with pytest.raises(FileNotFoundError):
                await box.files.list(f"/{name}/cellblock")
            assert (await box.exec(["ls", f"/{name}/cellblock"])).exit_code == 2
        await run(box, "cat /proc/self/status; touch /tmp/x /workspace/x /home/cell/x; mkdir /opt")
        assert await run(box, "ls /a/ /b/") == "/a/:\n\n/b/:\n"


async def test_commands_cannot_leave_the_root(root: Path) -> None:
    async with Sandbox(root=root) as box:
        status = await run(box, "cat /proc/self/status")
        assert "CapEff:\t0000000000000000" in status
        assert "Seccomp:\t2" in status
        mounts = await run(box, "cat /proc/self/mountinfo")
        points = {line.split()[4] for line in mounts.splitlines()}
        assert "/" in points
        assert not {point for point in points if point.startswith(("/opt", "/run", "/usr", "/etc"))}


async def test_a_fork_has_what_its_parent_changed_in_the_root(root: Path) -> None:
    async with Sandbox(root=root) as box:
        await run(
            box, "rm -r /etc; mkdir /etc /srv; echo new > /etc/new; rm /bin/mv /usr/bin/mv || true"
        )
        await box.run_code("x = 7")
        (branch,) = await box.fork()
        async with branch:
            assert await run(branch, "ls /etc; cat /etc/new") == "new\nnew\n"
            assert (await branch.exec(["mv", "--version"])).exit_code == 127
            assert (await branch.run_code("print(x)")).output == "7\n"
            await run(branch, "echo changed > /etc/new; touch /srv/branch")
            (second,) = await branch.fork()
            async with second:
                assert await run(second, "cat /etc/new; ls /srv") == "changed\nbranch\n"
        assert await run(box, "cat /etc/new; ls /srv") == "new\n"


async def test_what_the_policy_gives_is_in_the_root(root: Path, tmp_path: Path) -> None:
    for name in ("given", "changed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"{name}\n")
    given, changed = (str(tmp_path / name) for name in ("given", "changed"))
    policy = Policy(read_only=[given], read_write=[changed], network="host")
    async with Sandbox(root=root, policy=policy) as box:
        assert await run(box, f"cat {given}/file; echo new > {changed}/file") == "given\n"
        assert (await box.exec(f"echo new > {given}/file")).exit_code != 0
        own = Path("/etc/resolv.conf")
        if own.exists():
            assert await run(box, "cat /etc/resolv.conf") == own.read_text()
    assert (tmp_path / "changed" / "file").read_text() == "new\n"


async def test_names_are_found_without_a_network(root: Path, tmp_path: Path) -> None:
    """Engines leave /etc/hosts empty in images."""
    empty, own = (shutil.copytree(root, tmp_path / name) for name in ("empty", "own"))
    (empty / "etc" / "hosts").touch()
    (own / "etc" / "hosts").write_text("10.9.8.7 own\n")
    for source, start in ((root, "127.0.0.1 localhost"), (empty, "127.0.0.1"), (own, "10.9.8.7")):
        async with Sandbox(root=source) as box:
            assert (await run(box, "cat /etc/hosts")).startswith(start)
            await run(box, "echo 10.1.2.3 new > /etc/hosts")


async def test_hosts_of_the_policy_are_those_of_the_box(root: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.9.8.7 given\n")
    mount = Mount(str(tmp_path / "hosts"), "/etc/hosts")
    for source in (None, root):
        policy = Policy(network="host", read_only=[mount])
        async with Sandbox(root=source, policy=policy) as box:
            assert await run(box, "cat /etc/hosts") == "10.9.8.7 given\n"


async def test_a_box_that_is_cancelled_while_its_image_is_unpacked_leaves_nothing(
    tmp_path: Path, cache: Path
) -> None:
    big = layer(file("x", bytes(32 << 20)))
    source = write_layout(tmp_path / "image", *[big] * 12)
    box = Sandbox(root=source)
    starting = asyncio.ensure_future(box.start())
    while not [*cache.glob("*.partial/x")]:
        await asyncio.sleep(0.001)
        assert not starting.done()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await box.close()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


async def test_a_missing_root_is_named() -> None:
    with pytest.raises(ImageUnusable, match="/nowhere/image.tar"):
        await Sandbox(root="/nowhere/image.tar").start()


def test_the_root_is_copied_where_overlayfs_is_not_possible(root: Path, tmp_path: Path) -> None:
    """The kernel stacks two overlay file systems, but not a third."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system here")

    async def main(source: Path) -> None:
        async with Sandbox(root=source) as box:
            assert "overlay / " not in await run(box, "cat /proc/mounts")
            assert "own copy" in box.guarantees()[-1].mechanism
            await run(box, "mkdir -m 500 /closed && rm -f /bin/mv /usr/bin/mv")
            assert "cell:" in await run(box, "cat /etc/own /etc/passwd; echo new > /etc/own")
            assert "localhost" in await run(box, "cat /etc/hosts; echo > /etc/hosts")
            (branch,) = await box.fork()
            async with branch:
                assert await run(branch, "cat /etc/own") == "new\n"
                assert (await branch.exec(["mv"])).exit_code == 127
                assert await run(branch, "cat /etc/hosts") == "\n"
                assert "own copy" in branch.guarantees()[-1].mechanism
                assert (await branch.exec(["touch", "/closed/x"])).exit_code == 1

    with contextlib.ExitStack() as stack:
        lower = root
        for number in range(2):
            folders = [tmp_path / f"{name}{number}" for name in ("upper", "work", "merged")]
            for folder in folders:
                folder.mkdir()
            options = f"lowerdir={lower},upperdir={folders[0]},workdir={folders[1]}"
            lower = folders[2]
            command = ["mount", "-t", "overlay", "overlay", "-o", options, str(lower)]
            if subprocess.run(command, check=False).returncode != 0:
                pytest.skip("root cannot mount a file system here")
            stack.callback(subprocess.run, ["umount", str(lower)], check=True)
        asyncio.run(main(lower))
    assert (root / "etc" / "own").read_text() == "of this root\n"


async def test_nothing_is_left_of_a_box_with_a_root(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with Sandbox(root=root) as box:
        await run(box, "mkdir /closed; touch /closed/x; chmod 0 /closed; rm /etc/own")
    assert not [*tmp_path.glob("cellblock-session-*")]


PLAIN = """
import asyncio, sys
from cellblock import Sandbox

async def main():
    async with Sandbox(root=sys.argv[1]) as box:
        result = await box.exec("id -un; cat /etc/own; echo new > /etc/own; cat /etc/own")
        print(result.stdout_text, result.stderr_text)

asyncio.run(main())
"""


@pytest.mark.parametrize("form", ["image", "folder of another user"])
def test_a_root_needs_no_rights(form: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # other users cannot enter `tmp_path`
        top = Path(name)
        top.chmod(0o777)
        source = make_root(top / "root")
        if form == "image":
            with tarfile.open(top / "root.tar", "w") as archive:
                archive.add(source, ".")
            source = write_layout(top / "image", (top / "root.tar").read_bytes())
        done = run_as_plain_user("-c", PLAIN, str(source), XDG_CACHE_HOME=f"{name}/cache")
    lines = done.stdout.split("\n")
    assert lines[:2] == ["cell", "of this root"], done.stderr
    if form == "image":
        assert lines[2] == "new"


DOCKERFILE = """
FROM {base}
ENV GREETING="hello world"
WORKDIR /app
RUN echo a > a && echo b > b && ln -s a link
RUN rm b && mkdir -p /srv/new
"""
LOOK = "pwd; ls -l /app | cut -c1-10; cat link; echo $GREETING; ls -d /srv/* /bin /usr/bin/id"


@pytest.mark.engine
def test_commands_see_what_a_container_of_the_image_sees(tmp_path: Path) -> None:
    engine = docker_engine.shared_engine()
    image, saved = "cellblock-test-root", tmp_path / "image.tar"
    recipe = DOCKERFILE.format(base=engine.test_image("shell"))
    engine.docker("build", "--tag", image, "-", data=recipe.encode())
    engine.docker("save", "--output", str(saved), image)
    expected = engine.docker("run", "--rm", image, "sh", "-c", LOOK)

    async def main() -> None:
        async with Sandbox(root=saved) as box:
            assert (await run(box, LOOK)).strip() == expected
            await run(box, "rm a link && echo new > b")

    asyncio.run(main())
    asyncio.run(main())  # the cache is as it was


DEBIAN = Path.home() / ".cache" / "cellblock-ci" / "debian-bookworm"


async def test_a_debian_by_debootstrap_is_a_root() -> None:
    if not (DEBIAN / ".complete").exists():
        pytest.skip("no root by debootstrap: .ci/bare-debian makes it")
    async with Sandbox(root=DEBIAN) as box:
        python = "import sys, ssl, pwd, os; print(sys.prefix, pwd.getpwuid(os.getuid()).pw_name)"
        assert await run(box, f"python3 -c '{python}'") == "/usr cell\n"
        assert "bookworm" in await run(box, "cat /etc/os-release")
        assert "python3" in await run(box, "dpkg --get-selections")
        await run(box, "rm -r /usr/share/doc && mkdir /usr/share/doc && ls /usr/share/doc")
        await run(box, "sed -i s/root/other/ /etc/passwd && grep other /etc/passwd")
        assert box.guarantees()[-1].property == "root file system"


async def test_folders_of_the_root_are_removed_with_all_in_them(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    deep = root / "srv" / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    async with Sandbox(root=root) as box:
        await box.exec(["mkdir", "/srv/a/b/new"])
        await box.files.remove("/srv/a")
        assert [entry.name for entry in await box.files.list("/srv")] == []
    assert (deep / "file").exists()
