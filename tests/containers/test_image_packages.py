"""Packages in containers: installed once for each image and set. Most tests use tiny wheels."""

from __future__ import annotations

import asyncio
import logging
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CodeBlock,
    CodeResult,
    DockerCommandLineCodeExecutor,
    ImageUnavailable,
    PackageError,
    with_requirements,
)
from tests.containers import docker_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return docker_engine.use_shared_engine(monkeypatch, "python")


@pytest.fixture
def package() -> Iterator[str]:
    """Yield the name of a package for this test, and remove its images as users are told to do."""
    name = f"tiny-{uuid.uuid4().hex[:8]}"
    yield name
    docker("image", "prune", "--all", "--force", "--filter", f"label=cellblock.packages={name}")
    assert images_for(name) == []


@pytest.fixture
def wheels(package: str, tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    return write_wheel(tmp_path / "wheels", package)


def write_wheel(folder: Path, package: str, *, answer: int = 42, **more: str) -> Path:
    """Write a wheel to `folder`, and return the folder.

    The wheel's module `tiny` contains `answer`, and its program, named like the package, prints it.
    """
    name = package.replace("-", "_")
    info = f"{name}-1.0.dist-info"
    files = {
        "tiny.py": (
            f"import sys\nanswer = {answer}\ndef main():\n    print(answer, sys.executable)\n"
        ),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{package} = tiny:main\n",
        f"{info}/RECORD": "",
        **more,
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return folder


def docker(*arguments: str, data: bytes | None = None) -> str:
    return docker_engine.shared_engine().docker(*arguments, data=data)


def images_for(package: str) -> list[str]:
    """Return the IDs of the images that were built for `package`."""
    label = f"label=cellblock.packages={package}"
    return docker("images", "--quiet", "--filter", label).split()


async def run(
    executor: DockerCommandLineCodeExecutor, code: str, language: str = "python"
) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, language)])


def run_in_new_executor(code: str, language: str = "python", **options: Any) -> CodeResult:
    async def main() -> CodeResult:
        async with DockerCommandLineCodeExecutor(**options) as executor:
            return await run(executor, code, language)

    return asyncio.run(main())


async def test_python_and_shell_blocks_see_packages_in_an_image_without_pip(
    image: str, package: str, wheels: Path
) -> None:
    async with DockerCommandLineCodeExecutor(image, packages=[package], wheels=wheels) as executor:
        assert (await run(executor, "import tiny; print(tiny.answer)")).output == "42\n"
        assert (await run(executor, "python3 -m pip --version", "sh")).exit_code == 1
        result = await run(
            executor, f"{package}; cd /; python3 -I -c 'import tiny; tiny.main()'", "sh"
        )
        assert result.output == "42 /usr/bin/python3\n" * 2
        code = (
            "import tiny, os; print(os.stat(tiny.__file__).st_uid, os.path.exists(tiny.__cached__))"
        )
        assert (await run(executor, code)).output == "0 True\n"


async def test_packages_of_blocks_precede_requested_ones_and_those_of_the_image(
    image: str, package: str, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    more: dict[str, Any] = {
        "pathed.pth": "within\n",
        "within/other.py": "",
        "decimal.py": "shadowed = True",
    }
    wheels = write_wheel(tmp_path / "wheels", package, **more)

    async with DockerCommandLineCodeExecutor(
        image, packages=[package], wheels=wheels, user="77:88"
    ) as executor:
        code = "import sys; print(*[path for path in sys.path if 'packages' in path])"
        paths = "/home/cell/.local/lib/python3.11/site-packages /opt/cellblock/site-packages"
        paths += " /opt/cellblock/site-packages/within /usr/local/lib/python3.11/dist-packages\n"
        assert (await run(executor, code)).output == paths
        assert (await run(executor, f'python3 -c "{code}"', "sh")).output == paths
        assert (
            await run(executor, "import decimal; print(hasattr(decimal, 'shadowed'))")
        ).output == "False\n"
        install = (
            "import site; open(site.getusersitepackages() + '/tiny.py', 'w').write('answer = 7')"
        )
        assert (await run(executor, install)).exit_code == 0
        assert (await run(executor, "import tiny; print(tiny.answer)")).output == "7\n"


def test_a_set_of_packages_is_installed_once_per_image(
    image: str, package: str, wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = "import tiny; print(tiny.answer)"
    assert (
        run_in_new_executor(code, image=image, packages=[package], wheels=wheels).output == "42\n"
    )
    assert len(images_for(package)) == 1

    def refuse() -> str:
        raise AssertionError("uv was started")

    with monkeypatch.context() as patch:
        patch.setattr("uv.find_uv_bin", refuse)
        again = [package.upper(), f" {package}"]
        assert (
            run_in_new_executor(
                code, image=image, packages=again, wheels=[str(wheels)], preload=["tiny"]
            ).output
            == "42\n"
        )
    (tmp_path / "newer").mkdir()
    newer = write_wheel(tmp_path / "newer", package, answer=43)
    assert run_in_new_executor(code, image=image, packages=[package], wheels=newer).output == "43\n"
    assert len(images_for(package)) == 2


def test_concurrent_executors_build_the_same_image_once(
    image: str, package: str, wheels: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cellblock.environments.uv")

    async def one() -> str:
        async with DockerCommandLineCodeExecutor(
            image, packages=[package], wheels=wheels
        ) as executor:
            return (await run(executor, "import tiny; print(tiny.answer)")).output

    async def main() -> list[str]:
        return [*await asyncio.gather(one(), one())]

    assert asyncio.run(main()) == ["42\n", "42\n"]
    assert caplog.text.count(f" + {package}==1.0") == 1
    assert len(images_for(package)) == 1


def test_packages_of_functions_are_installed(image: str, package: str, wheels: Path) -> None:
    @with_requirements(python_packages=[package], global_imports=["tiny"])
    def answer() -> int:
        """Return the answer."""
        return tiny.answer  # type: ignore[name-defined]  # noqa: F821

    code = "from functions import answer; print(answer())"
    assert (
        run_in_new_executor(code, image=image, functions=[answer], wheels=wheels).output == "42\n"
    )


def test_the_error_for_a_failed_installation_quotes_uv(
    image: str, package: str, wheels: Path
) -> None:
    before = docker_engine.shared_engine().container_names()
    with pytest.raises(
        PackageError, match=rf"(?s)nowhere.*{image}.*uv says.*nowhere was not found"
    ):
        run_in_new_executor("print(1)", image=image, packages=[package, "nowhere"], wheels=wheels)
    with pytest.raises(PackageError, match="'-r x'"):
        run_in_new_executor("print(1)", image=image, packages=["-r x"], wheels=wheels)
    with pytest.raises(PackageError, match="wheels: the folder .*gone"):
        run_in_new_executor("print(1)", image=image, packages=[package], wheels=wheels / "gone")
    with pytest.raises(ImageUnavailable, match="docker pull .*no-such-image"):
        run_in_new_executor("print(1)", image="no-such-image", packages=[package], wheels=wheels)
    assert docker_engine.shared_engine().container_names() == before


def test_an_image_without_python_is_refused(package: str, wheels: Path) -> None:
    with pytest.raises(PackageError, match=r"has no python3"):
        run_in_new_executor(
            "echo",
            "sh",
            image=docker_engine.shared_engine().test_image("shell"),
            packages=[package],
            wheels=wheels,
        )


def test_a_kept_container_with_other_packages_is_not_reused(
    image: str, package: str, wheels: Path, tmp_path: Path
) -> None:
    name = f"cellblock-test-{uuid.uuid4()}"
    kept: dict[str, Any] = {
        "image": image,
        "container_name": name,
        "work_dir": tmp_path / "work",
        "auto_remove": False,
    }
    try:
        assert run_in_new_executor("print(1)", **kept).output == "1\n"
        with pytest.raises(BackendError, match="for other packages"):
            run_in_new_executor("print(1)", **kept, packages=[package], wheels=wheels)
    finally:
        docker("rm", "--force", "--volumes", name)


def test_the_built_image_keeps_the_settings_of_its_base(
    image: str, package: str, wheels: Path
) -> None:
    own = f"{package}:own"
    text = f'FROM {image}\nENV COLOUR=green\nUSER 12:34\nENTRYPOINT ["/nothing"]\n'
    docker("build", "--tag", own, "-", data=text.encode())
    try:
        assert run_in_new_executor(
            "import os, tiny; print(os.environ['COLOUR'])",
            image=own,
            packages=[package],
            wheels=wheels,
        ).output
        [made] = images_for(package)
        template = (
            "{{json .Config.User}} {{json .Config.Entrypoint}} "
            '{{index .Config.Labels "cellblock.base"}}'
        )
        assert docker("inspect", "--format", template, made) == f'"12:34" ["/nothing"] {own}'
        docker("rmi", made)
    finally:
        docker("rmi", "--force", own)


@pytest.mark.network
def test_wheels_from_an_index_match_the_python_of_the_image(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import numpy; print(numpy.arange(4).sum(), numpy.__version__)"
    assert run_in_new_executor(code, image=image, packages=["numpy==1.26.4"]).output == "6 1.26.4\n"
