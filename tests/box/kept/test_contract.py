"""A kept box meets the contract where that depends on how orders and frames are passed on.

All other checks pass too: `BOX_CHECKS`, with the class `cellblock:Sandbox` and `kept`, apart from
`a_closed_box_is_gone`, which expects that leaving `async with` closes a box.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cellblock.testing.conformance import BOX_CHECKS
from tests.box.shared_box import SharedBoxTarget

pytestmark = pytest.mark.depends_on_user

CHECKS = """
    a_wrong_command_is_a_value_error a_cancelled_command_is_killed given_input_arrives_as_it_is
    input_that_nobody_reads_is_no_error output_over_the_limit_is_cut_and_the_command_runs_on
    a_missing_folder_raises a_user_that_cannot_be_had_is_named
    a_stream_that_nobody_reads_holds_up_its_command_only file_errors_are_the_builtin_ones
    a_read_can_be_limited an_upload_whose_source_fails_changes_nothing an_unused_box_closes_itself
    other_languages_and_failures_are_results a_block_has_a_time_limit
    events_of_a_block_are_streamed running_commands_refuse_copies_by_name
    a_checkpoint_has_files_and_variables a_fork_is_a_box_of_its_own
    a_process_answers_what_is_sent a_process_whose_output_is_not_read_waits
    a_signal_reaches_the_group_of_the_process a_time_limit_keeps_the_state_of_a_shell
    a_shell_goes_on_after_a_copy_of_the_box
""".split()


@pytest.fixture(scope="module")
def kept(needs_sandbox: None) -> Iterator[SharedBoxTarget]:
    target = SharedBoxTarget("cellblock:Sandbox", {"kept": True})
    yield target
    asyncio.run(target.close())


@pytest.mark.parametrize("name", CHECKS)
async def test_a_kept_box_meets_the_contract(kept: SharedBoxTarget, name: str) -> None:
    await BOX_CHECKS[name](kept)
