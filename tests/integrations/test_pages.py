"""The pages of docs/integrations run with the frameworks, and print what the pages show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.markdown_pages import INTEGRATIONS, blocks, matches, page_name
from tests.frameworks import PINS, ROOT, run_in_framework

pytestmark = [pytest.mark.slow, pytest.mark.docs, pytest.mark.network, pytest.mark.timeout(300)]


def has_code(page: Path) -> bool:
    return any(block.language == "python" for block in blocks(page))


@pytest.mark.parametrize("page", [*filter(has_code, INTEGRATIONS)], ids=page_name)
def test_code_of_a_page_does_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    found = [block for block in blocks(page) if block.language == "python"]
    program = ROOT / "tests" / "docs" / "run_page.py"
    given = json.dumps([(block.line, block.code) for block in found])
    printed = run_in_framework(PINS[page.stem], tmp_path, program, page, given=given)
    for block, output in zip(found, json.loads(printed.splitlines()[-1]), strict=True):
        where = f"{page_name(page)}:{block.line}"
        assert matches(output, block.shown_output), f"{where} printed:\n{output}"
