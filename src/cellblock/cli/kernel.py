"""`cellblock kernel`: Jupyter kernels that run notebooks in a sandbox."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from ..errors import CellblockError, WorkspaceError
from .options.settings import Settings
from .options.shared import check_work_dir, common_options, is_home_allowed, work_dir_refusal
from .sizes import exact_size

if TYPE_CHECKING:
    from ..kernel.kernel import InputCallback
    from ..kernel.session import KernelSession

_PRELOAD = click.option(
    "--preload",
    multiple=True,
    metavar="MODULE",
    help="Import a module before the session starts. Can be given several times.",
)


_INSTALLED_PREFIX = click.option(
    "--prefix", metavar="FOLDER", help="Look below FOLDER, as it was given to `install`."
)


def _check_fixed_work_dir(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse what contains the home folder. A relative folder starts at each notebook's folder."""
    is_fixed = value is not None and os.path.isabs(os.path.expanduser(value))
    return check_work_dir(context, parameter, value) if is_fixed else value


class KernelCommandSettings(Settings):
    """The options of a kernel. Long output is cut, as a notebook keeps it."""

    @property
    def limits_output(self) -> bool:
        """See `Settings`."""
        return True


_ALLOW_SCRIPTS = click.option(
    "--allow-scripts",
    is_flag=True,
    help="Show HTML with its scripts and JavaScript. They run in your browser, not in the sandbox.",
)


@click.group("kernel")
def command() -> None:
    """Run Jupyter notebooks in a sandbox.

    A kernel of Cellblock runs the cells of a notebook in a sandboxed session, in every Jupyter
    client. If a cell crashes, the variables from before it are restored.
    """


@command.command("install")
@click.option(
    "--name",
    default="cellblock",
    show_default=True,
    metavar="NAME",
    help="Name of the kernel for Jupyter's commands.",
)
@click.option(
    "--display-name", metavar="TEXT", help="Name in menus.  [default: Python (sandbox: NAME)]"
)
@click.option(
    "--prefix",
    metavar="FOLDER",
    help="Install below FOLDER, such as a virtual environment, instead of your own kernels.",
)
@click.option("--no-check", is_flag=True, help="Do not start the sandbox once as a check.")
@common_options(None, _check_fixed_work_dir)
@_PRELOAD
@_ALLOW_SCRIPTS
@click.pass_context
def install(
    context: click.Context,
    name: str,
    display_name: str | None,
    prefix: str | None,
    no_check: bool,
    allow_scripts: bool,
    **options: Any,
) -> int:
    """Install a kernel with these options.

    The sandbox and its packages are first started once, so that errors show up now. Relative
    folders start at the folder of the notebook.
    """
    _require_extra()
    from ..kernel.specs import install_kernel

    settings = KernelCommandSettings(executor="session", **options)
    if not no_check:
        _check(settings)
    shown = display_name or f"Python (sandbox{'' if name == 'cellblock' else f': {name}'})"
    arguments = [*_to_arguments(settings, allow_home=is_home_allowed(context))]
    if allow_scripts:
        arguments.append("--allow-scripts")
    folder = install_kernel(name, shown, arguments, prefix=prefix)
    click.echo(f"Installed the kernel {name} in {folder}")
    if settings.work_dir is not None and not os.path.isabs(os.path.expanduser(settings.work_dir)):
        click.echo(f"Its work folder {settings.work_dir} starts at the folder of each notebook.")
    click.echo(f'Choose "{shown}" in Jupyter, or use the name: jupyter console --kernel {name}')
    return 0


@command.command("list")
@_INSTALLED_PREFIX
def list_command(prefix: str | None) -> int:
    """List the installed kernels and their options."""
    _require_extra()
    from ..kernel.specs import list_kernels

    for kernel in list_kernels(prefix):
        click.echo("  ".join([kernel.name, kernel.folder, *kernel.options]))
    return 0


@command.command("remove")
@click.argument("name")
@_INSTALLED_PREFIX
def remove(name: str, prefix: str | None) -> int:
    """Remove the kernel NAME."""
    _require_extra()
    from ..kernel.specs import remove_kernel

    click.echo(f"Removed the kernel {name} from {remove_kernel(name, prefix=prefix)}")
    return 0


@command.command("start", hidden=True)
@click.option("--connection-file", required=True, metavar="FILE")
@common_options(None, check_work_dir=None)
@_PRELOAD
@_ALLOW_SCRIPTS
@click.pass_context
def start(context: click.Context, connection_file: str, allow_scripts: bool, **options: Any) -> int:
    """Run the kernel that a Jupyter client starts.

    If the work folder cannot be used, each cell says so: a client does not show why a kernel ends.
    """
    _require_extra()
    from ..kernel.app import run_kernel
    from .options.factory import WORK_DIR, make_kernel_session, work_folder

    settings = KernelCommandSettings(executor="session", **options)
    folder = WORK_DIR if settings.work_dir is None else settings.work_dir
    refusal = ""
    with contextlib.ExitStack() as stack:
        if reason := work_dir_refusal(context, os.path.abspath(os.path.expanduser(folder))):
            refusal = f"C{reason[1:]} Notebooks in other folders can use this kernel."
        else:
            try:
                # Kept even if it is empty: another notebook's kernel can use it at the same time.
                stack.enter_context(work_folder(folder, is_default=False))
            except WorkspaceError as error:
                refusal = str(error)

        def make_session(ask: InputCallback) -> KernelSession:
            return make_kernel_session(settings, None if refusal else folder, ask, refusal)

        run_kernel(make_session, connection_file, allows_scripts=allow_scripts)
    return 0


def _require_extra() -> None:
    if not all(map(find_spec, ("ipykernel", "jupyter_client", "nh3", "tinycss2"))):
        raise CellblockError(
            "Kernels need ipykernel, nh3 and tinycss2. Install them: "
            "pip install 'cellblock[jupyter]'."
        )


def _check(settings: Settings) -> None:
    """Start a session with `settings`, without its work folder, and stop it."""
    import asyncio

    from .options.factory import install_progress, make_kernel_session

    async def start_and_stop() -> None:
        async with make_kernel_session(settings, None, None).executor:
            pass

    with install_progress(lambda text: click.echo(f"--- {text}", err=True)):
        asyncio.run(start_and_stop())


def _to_arguments(settings: Settings, *, allow_home: bool) -> Iterator[str]:
    """Yield the options that `start` needs for `settings`."""
    if allow_home:
        yield "--allow-home"
    if settings.network:
        yield "--network"
    values = {
        "--timeout": _plain_number(settings.timeout),
        "--memory": None if settings.memory_bytes is None else exact_size(settings.memory_bytes),
        "--files": settings.files,
        "--work-dir": settings.work_dir,
        "--env": settings.env,
    }
    for option, value in values.items():
        if value is not None:
            yield f"{option}={value}"
    for package in settings.packages:
        yield f"--package={package}"
    for module in settings.preload:
        yield f"--preload={module}"


def _plain_number(value: float | None) -> float | None:
    return int(value) if value is not None and value.is_integer() else value
