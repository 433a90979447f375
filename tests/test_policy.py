"""The policy denies everything by default and is validated on creation."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import Mount, Policy

PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0/."), min_size=1).map(
    lambda name: f"/{name}"
)
MOUNTS = st.lists(st.builds(Mount, PATHS, st.none() | PATHS), max_size=3).map(tuple)
VARIABLES = st.dictionaries(
    st.text(st.characters(exclude_characters="=\0"), min_size=1),
    st.text(st.characters(exclude_characters="\0")),
)


@given(
    st.builds(
        Policy,
        network=st.sampled_from(["none", "host"]),
        protect_startup_files=st.booleans(),
        read_only=MOUNTS,
        read_write=MOUNTS,
        environment=VARIABLES,
    )
)
def test_policy_survives_a_round_trip_through_json(policy: Policy) -> None:
    again = Policy.from_dict(json.loads(json.dumps(policy.to_dict())))
    assert again.to_dict() == policy.to_dict()
    assert (again.read_only, again.read_write) == (policy.read_only, policy.read_write)


def test_default_policy_allows_nothing() -> None:
    assert Policy().to_dict() == {
        "network": "none",
        "read_only": [],
        "read_write": [],
        "environment": {},
        "protect_startup_files": True,
    }


def test_paths_become_mounts_with_the_same_target() -> None:
    policy = Policy(read_only=("/data", Path("/more")))
    assert [mount.target_path for mount in policy.mounts(writable=False)] == ["/data", "/more"]


@pytest.mark.parametrize("network", ["None", "all", None, True])
def test_unknown_network_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match="must be 'none' or 'host'"):
        Policy(network=network)  # pyright: ignore[reportArgumentType] - untyped callers


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("data", None),
        ("", None),
        ("/data", "data"),
        ("/data", "/a/../b"),
        ("/", None),
        ("/data", "/"),
    ],
)
def test_ambiguous_mount_is_refused(source: str, target: str | None) -> None:
    with pytest.raises(ValueError, match="^Mount (source|target) must"):
        Mount(source, target)


@pytest.mark.parametrize(
    "variables", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": 1}, {1: "x"}]
)
def test_invalid_environment_variable_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="environment variable"):
        Policy(environment=variables)


def test_environment_is_not_in_the_repr() -> None:
    assert "hunter2" not in repr(Policy(environment={"TOKEN": "hunter2"}))


def test_policy_is_immutable() -> None:
    variables = {"A": "1"}
    policy = Policy(environment=variables)
    variables["B"] = "2"
    assert dict(policy.environment) == {"A": "1"}
    with pytest.raises(TypeError):
        policy.environment["B"] = "2"  # pyright: ignore[reportIndexIssue] - tested
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.network = "host"  # pyright: ignore[reportAttributeAccessIssue] - tested


def test_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Unknown fields of a policy: readonly"):
        Policy.from_dict({"readonly": []})


def test_mounts_from_json_are_paths_or_pairs() -> None:
    policy = Policy.from_dict({"read_only": ["/a", ["/b"], ["/c", None], ["/d", "/e"]]})
    assert policy.read_only == (Mount("/a"), Mount("/b"), Mount("/c"), Mount("/d", "/e"))
    wrong: list[object] = ["/a", [1], [[]], [["/a", 1]], [["/a", "/b", "/c"]], [{"a": "b"}], None]
    for value in wrong:
        with pytest.raises(ValueError, match="list of paths, or of pairs"):
            Policy.from_dict({"read_only": value})
