"""Where checkpoints have come from, also when some of them are gone."""

from __future__ import annotations

from cellblock.server.sessions.lineage import Lineage


def _parents(lineage: Lineage, *names: str) -> list[str | None]:
    return [lineage.parent_of(name, set(names)) for name in names]


def _lineage(*names: str) -> Lineage:
    lineage = Lineage()
    for name in names:
        lineage.add(name)
    return lineage


def test_a_checkpoint_follows_the_one_that_was_made_or_restored_last() -> None:
    lineage = _lineage("a", "b")
    lineage.current = "a"
    lineage.add("c")
    assert _parents(lineage, "a", "b", "c") == [None, "a", "a"]


def test_what_followed_a_deleted_checkpoint_follows_the_one_before() -> None:
    lineage = _lineage("a", "b", "c")
    assert lineage.parent_of("c", {"a", "c"}) == "a"
    assert lineage.nearest("b", {"a", "c"}) == "a"
    assert lineage.nearest("a", {"c"}) is None


def test_a_name_that_is_used_again_makes_no_circle() -> None:
    lineage = _lineage("a", "b")
    lineage.add("a")
    assert _parents(lineage, "a", "b") == ["b", None]
    lineage.add("a")
    assert _parents(lineage, "a", "b") == ["b", None]


def test_forks_remember_where_they_have_come_from() -> None:
    lineage = _lineage("a", "b")
    lineage.add_fork("one", "a")
    lineage.add_fork("two", None)
    assert [(fork.session_id, fork.checkpoint) for fork in lineage.forks] == [
        ("one", "a"),
        ("two", "b"),
    ]
