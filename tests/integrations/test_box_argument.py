"""Adapters that make a sandbox take all parameters of one, also from settings files and logs."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from cellblock import DockerSandbox, Limits, Policy, Sandbox, SandboxSessionCodeExecutor
from cellblock.integrations.box_argument import BoxConfig, make_box


def test_parameters_are_kept_in_settings_and_logs() -> None:
    policy = Policy(network="host", environment={"A": "5"})
    config = BoxConfig.model_validate(
        {"limits": Limits(memory_bytes=1 << 30), "policy": policy, "users": True}
    )
    again = BoxConfig.model_validate_json(config.model_dump_json())
    assert (again, hash(again)) == (config, hash(config))
    session = again.make_box().session
    assert isinstance(session, SandboxSessionCodeExecutor)
    assert (session.limits.memory_bytes, session.policy) == (1 << 30, policy)


class WithUsers(BoxConfig, frozen=True):
    not_of_box = frozenset({"seconds"})
    defaults = MappingProxyType({"users": True})
    users: bool = True
    seconds: int = 30


def test_a_log_holds_what_was_given() -> None:
    config = WithUsers(image="x")
    again = WithUsers.model_validate_json(config.model_dump_json())  # it refuses users
    assert (again, again.model_dump()) == (config, {"image": "x", "seconds": 30})


def test_the_image_says_which_kind_of_sandbox_it_is() -> None:
    defaults = {"timeout": None, "users": True}
    for arguments, kind in (
        ({}, Sandbox),
        ({"image": None}, Sandbox),
        ({"image": "x"}, DockerSandbox),
    ):
        box = make_box(arguments, **defaults)
        assert (type(box), box.timeout) == (kind, None)
    assert make_box({"timeout": 7}, **defaults).timeout == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"imag": "x"}, "argument 'imag'. See the parameters of cellblock.Sandbox."),
        ({"image": "x", "root": "y"}, "root. See the parameters of cellblock.DockerSandbox."),
        ({"limits": {"cpus": 1}}, "Unknown limits: cpus."),
        ({"limits": 3}, "limits must be a Limits object"),
        ({"policy": {"network": "all"}}, "Policy.network must be 'none' or 'host'"),
    ],
)
def test_what_no_sandbox_takes_is_named(arguments: dict[str, Any], message: str) -> None:
    for refuse in (make_box, BoxConfig.model_validate):
        with pytest.raises(ValueError, match=message):
            refuse(arguments)
