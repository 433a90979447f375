"""The documents hold together: their links lead somewhere, and their lines fit on a screen."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import cellblock
from tests.docs.markdown_pages import OTHERS, PAGES, ROOT, anchors, blocks, links, page_name

DOCUMENTS = [*PAGES, *OTHERS]
CONFIGURATIONS = [
    ROOT / name
    for name in ("mkdocs.yml", ".editorconfig", ".pre-commit-config.yaml", ".importlinter")
] + sorted((ROOT / ".github").rglob("*.*"))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_links_lead_to_a_file_and_a_heading() -> None:
    dead: list[tuple[str, str]] = []
    for document in DOCUMENTS:
        for link in links(document):
            name, _, anchor = link.partition("#")
            target = Path(os.path.normpath(document.parent / name)) if name else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append((page_name(document), link))
    assert dead == []


def test_lines_have_at_most_100_columns() -> None:
    assert [
        (page_name(document), line)
        for document in (*DOCUMENTS, *CONFIGURATIONS)
        for line in read(document).splitlines()
        if len(line) > 100
    ] == []


def test_code_on_the_site_fits_without_scrolling() -> None:
    assert [
        (page_name(page), line)
        for page in PAGES[1:]
        for block in blocks(page)
        for line in block.code.splitlines()
        if len(line) > 72
    ] == []


def has_await_outside_a_function(code: str) -> bool:
    try:
        compile(code, "page", "exec")
    except SyntaxError:
        compile(code, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return True
    return False


def test_pages_say_that_await_outside_a_function_is_a_notebooks() -> None:
    assert [
        page_name(page)
        for page in PAGES
        if any(
            has_await_outside_a_function(block.code)
            for block in blocks(page)
            if block.language == "python"
        )
        if not re.search(r"`await` outside a function, (\[as in a notebook\]|as below)", read(page))
    ] == []


def test_source_files_that_a_document_names_exist() -> None:
    roots = (ROOT, ROOT / "src", ROOT / "src" / "cellblock")
    assert [
        (page_name(document), name)
        for document in DOCUMENTS
        for name in re.findall(r"`([\w./-]+/[\w.-]+\.c?py)`", read(document))
        if not any((root / name).exists() for root in roots)
    ] == []


def test_the_site_lists_every_page() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", read(ROOT / "mkdocs.yml")))
    assert {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]} == listed


def test_security_begins_with_a_threat_model_and_supports_this_version() -> None:
    text = read(ROOT / "SECURITY.md")
    assert text.split("\n\n")[1].startswith("**Threat model.**")
    supported, report = text.partition("## Supported versions")[2].split("\n## ", 1)
    minor = ".".join(cellblock.__version__.split(".")[:2])
    assert re.search(rf"now {re.escape(minor)}\).*\| yes \|", supported)
    assert "in private" in report.partition("\n\n")[2].partition("\n")[0]


def test_pre_commit_runs_the_programs_of_the_check_script() -> None:
    check, hooks = read(ROOT / "scripts" / "check"), read(ROOT / ".pre-commit-config.yaml")
    programs = re.findall(r"^holds (\S+(?: format| check)?)", check, re.MULTILINE)
    assert [program for program in programs if f"entry: {program}" not in hooks] == []
