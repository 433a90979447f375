"""Options of `cellblock serve` and `cellblock keys` that are refused."""

from __future__ import annotations

import pytest

from ..command_server import run_command


@pytest.mark.parametrize("option", ["--timeout", "--idle", "--max-age", "--stall"])
@pytest.mark.parametrize("value", ["nan", "inf", "0"])
def test_a_time_that_is_no_number_of_seconds_is_a_usage_error(option: str, value: str) -> None:
    _check_usage_error("serve", "--no-auth", option, value)


@pytest.mark.parametrize("option", ["--timeout", "--days", "--cpu-seconds"])
def test_a_limit_of_a_key_that_is_no_number_is_a_usage_error(option: str) -> None:
    _check_usage_error("keys", "add", "name", option, "nan")


def _check_usage_error(*arguments: str) -> None:
    done = run_command(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"cellblock: Invalid value for '{arguments[-2]}'")
    assert done.stderr.count("\n") == 1
