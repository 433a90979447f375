"""Packages in containers: once for each image and set, in a layer that the engine keeps; most from small wheels made here."""

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

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return docker_engine.prepare(monkeypatch, "python")


@pytest.fixture
def package() -> Iterator[str]:
    """Give the name of a package of this test alone; the images that are built for it go as we tell users to remove them."""
    name = f"tiny-{uuid.uuid4().hex[:8]}"
    yield name
    docker_engine.running().docker(
        "image", "prune", "--all", "--force", "--filter", f"label=cellblock.packages={name}"
    )
    assert built(name) == []


@pytest.fixture
def wheels(package: str, tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    return wheel(tmp_path / "wheels", package)


def wheel(folder: Path, package: str, *, answer: int = 42, **more: str) -> Path:
    """Put a wheel into `folder`. Its module `tiny` has `answer`, and its program, of the package's name, prints it."""
    name = package.replace("-", "_")
    files = {
        "tiny.py": f"import sys\nanswer = {answer}\ndef main():\n    print(answer, sys.executable)\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}-1.0.dist-info/entry_points.txt": f"[console_scripts]\n{package} = tiny:main\n",
        f"{name}-1.0.dist-info/RECORD": "",
        **more,
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return folder


def built(package: str) -> list[str]:
    """Give the images that there are for `package` alone."""
    label = f"label=cellblock.packages={package}"
    return docker_engine.running().docker("images", "--quiet", "--filter", label).split()


def containers() -> set[str]:
    return set(docker_engine.running().docker("ps", "--all", "--quiet").split())


async def run(
    executor: DockerCommandLineCodeExecutor, code: str, language: str = "python"
) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, language)])


def result_of(code: str, language: str = "python", **options: Any) -> CodeResult:
    async def main() -> CodeResult:
        async with DockerCommandLineCodeExecutor(**options) as executor:
            return await run(executor, code, language)

    return asyncio.run(main())


def test_packages_are_there_for_programs_and_shells_of_an_image_without_pip(
    image: str, package: str, wheels: Path
) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(
            image, packages=[package], wheels=wheels
        ) as executor:
            assert (await run(executor, "import tiny; print(tiny.answer)")).output == "42\n"
            assert (await run(executor, "python3 -m pip --version", "sh")).exit_code == 1
            result = await run(
                executor, f"{package}; cd /; python3 -I -c 'import tiny; tiny.main()'", "sh"
            )
            assert result.output == "42 /usr/bin/python3\n" * 2
            code = "import tiny, os; print(os.stat(tiny.__file__).st_uid, os.path.exists(tiny.__cached__))"
            assert (await run(executor, code)).output == "0 True\n"

    asyncio.run(main())


def test_what_blocks_install_comes_before_packages_and_those_before_the_image(
    image: str, package: str, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    more: dict[str, Any] = {
        "pathed.pth": "within\n",
        "within/other.py": "",
        "decimal.py": "shadowed = True",
    }
    wheels = wheel(tmp_path / "wheels", package, **more)

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(
            image, packages=[package], wheels=wheels, user="77:88"
        ) as executor:
            code = "import sys; print(*[path for path in sys.path if 'packages' in path])"
            paths = "/home/cell/.local/lib/python3.11/site-packages /opt/cellblock/site-packages"
            paths += (
                " /opt/cellblock/site-packages/within /usr/local/lib/python3.11/dist-packages\n"
            )
            assert (await run(executor, code)).output == paths
            assert (await run(executor, f'python3 -c "{code}"', "sh")).output == paths
            assert (
                await run(executor, "import decimal; print(hasattr(decimal, 'shadowed'))")
            ).output == "False\n"
            own = "import site; open(site.getusersitepackages() + '/tiny.py', 'w').write('answer = 7')"
            assert (await run(executor, own)).exit_code == 0
            assert (await run(executor, "import tiny; print(tiny.answer)")).output == "7\n"

    asyncio.run(main())


def test_a_set_is_installed_once_for_an_image(
    image: str, package: str, wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = "import tiny; print(tiny.answer)"
    assert result_of(code, image=image, packages=[package], wheels=wheels).output == "42\n"
    assert len(built(package)) == 1

    def refuse() -> str:
        raise AssertionError("uv was looked for")

    with monkeypatch.context() as patch:
        patch.setattr("uv.find_uv_bin", refuse)
        again = [package.upper(), f" {package}"]
        assert (
            result_of(
                code, image=image, packages=again, wheels=[str(wheels)], preload=["tiny"]
            ).output
            == "42\n"
        )
    (tmp_path / "newer").mkdir()
    newer = wheel(tmp_path / "newer", package, answer=43)
    assert result_of(code, image=image, packages=[package], wheels=newer).output == "43\n"
    assert len(built(package)) == 2


def test_two_that_need_the_same_at_once_build_it_once(
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
    assert len(built(package)) == 1


def test_functions_bring_their_packages(image: str, package: str, wheels: Path) -> None:
    @with_requirements(python_packages=[package], global_imports=["tiny"])
    def answer() -> int:
        """Give the answer."""
        return tiny.answer  # type: ignore[name-defined]  # noqa: F821

    code = "from functions import answer; print(answer())"
    assert result_of(code, image=image, functions=[answer], wheels=wheels).output == "42\n"


def test_what_cannot_be_installed_is_told_in_the_words_of_the_resolver(
    image: str, package: str, wheels: Path
) -> None:
    before = containers()
    with pytest.raises(
        PackageError, match=rf"(?s)nowhere.*{image}.*uv says.*nowhere was not found"
    ):
        result_of("print(1)", image=image, packages=[package, "nowhere"], wheels=wheels)
    with pytest.raises(PackageError, match="'-r x'"):
        result_of("print(1)", image=image, packages=["-r x"], wheels=wheels)
    with pytest.raises(PackageError, match="wheels: the folder .*gone"):
        result_of("print(1)", image=image, packages=[package], wheels=wheels / "gone")
    with pytest.raises(ImageUnavailable, match="docker pull .*no-such-image"):
        result_of("print(1)", image="no-such-image", packages=[package], wheels=wheels)
    assert containers() == before


def test_an_image_without_python_takes_no_packages(package: str, wheels: Path) -> None:
    with pytest.raises(PackageError, match=r"has no python3"):
        result_of(
            "echo",
            "sh",
            image=docker_engine.running().image("shell"),
            packages=[package],
            wheels=wheels,
        )


def test_a_kept_container_of_other_packages_is_not_taken(
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
        assert result_of("print(1)", **kept).output == "1\n"
        with pytest.raises(BackendError, match="for other packages"):
            result_of("print(1)", **kept, packages=[package], wheels=wheels)
    finally:
        docker_engine.running().docker("rm", "--force", "--volumes", name)


def test_the_image_is_otherwise_the_one_below(image: str, package: str, wheels: Path) -> None:
    own = f"{package}:own"
    text = f'FROM {image}\nENV COLOUR=green\nUSER 12:34\nENTRYPOINT ["/nothing"]\n'
    docker_engine.running().docker("build", "--tag", own, "-", data=text.encode())
    try:
        assert result_of(
            "import os, tiny; print(os.environ['COLOUR'])",
            image=own,
            packages=[package],
            wheels=wheels,
        ).output
        [made] = built(package)
        template = '{{json .Config.User}} {{json .Config.Entrypoint}} {{index .Config.Labels "cellblock.base"}}'
        assert (
            docker_engine.running().docker("inspect", "--format", template, made)
            == f'"12:34" ["/nothing"] {own}'
        )
        docker_engine.running().docker("rmi", made)
    finally:
        docker_engine.running().docker("rmi", "--force", own)


@pytest.mark.network
def test_wheels_of_an_index_are_those_for_the_python_inside(
    image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import numpy; print(numpy.arange(4).sum(), numpy.__version__)"
    assert result_of(code, image=image, packages=["numpy==1.26.4"]).output == "6 1.26.4\n"
