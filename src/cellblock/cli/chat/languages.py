"""The languages whose blocks the command runs."""

from __future__ import annotations

from ...languages import LANGUAGES as _ALL

LANGUAGES = tuple(language.name for language in _ALL if language.policy == "execute")
