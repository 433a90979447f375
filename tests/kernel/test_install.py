"""`cellblock kernel install`, `list` and `remove`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_process import run_command
from tests.kernel.live_kernel import jupyter_folders, open_kernel

pytestmark = pytest.mark.kernel


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of kernels."""
    with jupyter_folders(tmp_path):
        yield tmp_path / "data" / "kernels"


def test_a_kernel_is_installed_listed_and_removed(folder: Path) -> None:
    done = run_command("kernel", "install", "--name", "lab", "--memory=1G", "--timeout=60")
    assert (done.returncode, done.stderr) == (0, "")
    assert 'Choose "Python (sandbox: lab)" in Jupyter' in done.stdout
    spec = json.loads((folder / "lab" / "kernel.json").read_text())
    assert spec["display_name"] == "Python (sandbox: lab)"
    listed = run_command("kernel", "list").stdout
    assert "lab" in listed
    assert listed.split()[-2:] == ["--timeout=60", "--memory=1G"]
    assert run_command("kernel", "remove", "lab").returncode == 0
    assert run_command("kernel", "list").stdout == ""
    assert not (folder / "lab").exists()


@pytest.mark.slow
def test_a_kernel_below_a_prefix_is_listed_and_removed(folder: Path, tmp_path: Path) -> None:
    prefix = f"--prefix={tmp_path / 'env'}"
    options = ("--memory=9000001", "--timeout=2.5")
    done = run_command("kernel", "install", "--no-check", "--name=lab", prefix, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert not folder.exists()
    assert run_command("kernel", "list").stdout == ""
    listed = run_command("kernel", "list", prefix).stdout
    assert listed.split()[-2:] == ["--timeout=2.5", "--memory=9000001"]
    assert "--prefix" in run_command("kernel", "remove", "lab").stderr
    assert run_command("kernel", "remove", "lab", prefix).returncode == 0
    assert run_command("kernel", "list", prefix).stdout == ""


@pytest.mark.slow
def test_options_reach_the_session_and_a_relative_work_folder_starts_at_each_notebook(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)  # also if it is installed from there
    done = run_command("kernel", "install", "--no-check", "--work-dir=.", "--preload=json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "starts at the folder of each notebook" in done.stdout
    with open_kernel(home / "notebooks") as kernel:
        assert kernel.run("import sys; 'json' in sys.modules").value == "True"
        kernel.run("open('made.txt', 'w').close()")
    assert (home / "notebooks" / "made.txt").exists()
    for given in ("~", str(home), str(tmp_path)):
        done = run_command("kernel", "install", "--no-check", f"--work-dir={given}")
        assert done.returncode == 2


@pytest.mark.slow
def test_a_notebook_whose_work_folder_is_refused_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    run_command("kernel", "install", "--no-check", "--work-dir=.")
    with open_kernel(home) as kernel:
        error = kernel.run("open('made.txt', 'w').close()").content["evalue"]
    assert f"because {home} is your home folder. Use a separate folder" in error
    assert not (home / "made.txt").exists()
    (home / "coding").write_text("no folder")
    run_command("kernel", "install", "--no-check", "--name=default")
    with open_kernel(home, "default") as kernel:
        assert "coding cannot be created" in kernel.run("1").content["evalue"]


def test_a_package_or_a_name_that_is_none_is_reported_and_nothing_is_installed(
    folder: Path,
) -> None:
    done = run_command("kernel", "install", "--package=no such package")
    assert done.returncode == 3
    assert "package" in done.stderr.lower()
    done = run_command("kernel", "install", "--no-check", "--name=../outside")
    assert done.returncode == 3
    assert "../outside" in done.stderr
    assert not folder.exists()


@pytest.mark.slow
def test_kernels_of_other_programs_are_left_alone(folder: Path) -> None:
    other = folder / "mine"
    other.mkdir(parents=True)
    spec = {"argv": ["mine"], "display_name": "Mine", "language": "python"}
    (other / "kernel.json").write_text(json.dumps(spec))
    for arguments in (["install", "--no-check", "--name=mine"], ["remove", "mine"]):
        done = run_command("kernel", *arguments)
        assert done.returncode == 3
        assert "mine" in done.stderr
    assert json.loads((other / "kernel.json").read_text()) == spec
    assert "mine" not in run_command("kernel", "list").stdout
