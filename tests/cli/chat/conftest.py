"""A new folder for each test, and no model in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable_reason


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder, and put state into another."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "CELLBLOCK_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_COLOR", "VISUAL", "EDITOR", "TMUX", "TERM_PROGRAM", "LC_TERMINAL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cwd"


@pytest.fixture
def sandbox() -> None:
    """Skip the test where there is no full sandbox."""
    if reason := unavailable_reason():
        pytest.skip(reason)
