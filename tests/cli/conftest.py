"""A new folder for each test, and nothing in the environment that changes what commands do."""

from __future__ import annotations

from pathlib import Path

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable_reason

_MODEL = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "CELLBLOCK_MODEL")
_TERMINAL = ("NO_COLOR", "VISUAL", "EDITOR", "TMUX", "TERM_PROGRAM", "LC_TERMINAL")
_SCREEN = ("DISPLAY", "WAYLAND_DISPLAY")


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder, and put state into another."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    for name in (*_MODEL, *_TERMINAL, *_SCREEN):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cwd"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the new folder of temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def sandbox() -> None:
    """Skip the test where there is no full sandbox."""
    if reason := unavailable_reason():
        pytest.skip(reason)
