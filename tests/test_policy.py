"""The policy denies everything by default and is validated on creation."""

import dataclasses
import json
from pathlib import Path
from typing import Any

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


def test_values_that_are_no_policy_are_refused() -> None:
    untyped: Any = Policy
    for network in ("None", "all", None, True):
        with pytest.raises(ValueError, match="must be 'none' or 'host'"):
            untyped(network=network)
    paths = [("data", None), ("", None), ("/", None)]
    paths += [("/data", "data"), ("/data", "/a/../b"), ("/data", "/")]
    for source, target in paths:
        with pytest.raises(ValueError, match="^Mount (source|target) must"):
            Mount(source, target)
    variables: list[Any] = [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}, {"A": 1}]
    for environment in [*variables, {1: "x"}]:
        with pytest.raises(ValueError, match="environment variable"):
            untyped(environment=environment)
    with pytest.raises(ValueError, match="Unknown fields of a policy: readonly"):
        Policy.from_dict({"readonly": []})


def test_policy_is_immutable_and_its_environment_not_in_the_repr() -> None:
    variables = {"A": "hunter2"}
    policy = Policy(environment=variables)
    assert "hunter2" not in repr(policy)
    variables["B"] = "2"
    assert dict(policy.environment) == {"A": "hunter2"}
    with pytest.raises(TypeError):
        policy.environment["B"] = "2"  # pyright: ignore[reportIndexIssue] - tested
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.network = "host"  # pyright: ignore[reportAttributeAccessIssue] - tested


def test_mounts_are_paths_or_pairs_also_from_json() -> None:
    policy = Policy(read_only=("/data", Path("/more")))
    assert [mount.target_path for mount in policy.mounts(writable=False)] == ["/data", "/more"]
    policy = Policy.from_dict({"read_only": ["/a", ["/b"], ["/c", None], ["/d", "/e"]]})
    assert policy.read_only == (Mount("/a"), Mount("/b"), Mount("/c"), Mount("/d", "/e"))
    wrong: list[object] = ["/a", [1], [[]], [["/a", 1]], [["/a", "/b", "/c"]], [{"a": "b"}], None]
    for value in wrong:
        with pytest.raises(ValueError, match="list of paths, or of pairs"):
            Policy.from_dict({"read_only": value})
