"""`%checkpoint`, `%restore`, `%checkpoints` and `%drop`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.kernel.magics import Magic, split_cell
from tests.kernel.live_kernel import LiveKernel, open_kernel

pytestmark = pytest.mark.kernel


def test_restore_brings_variables_and_files_back(kernel: LiveKernel) -> None:
    kernel.run("x = 1\nopen('data.txt', 'w').write('old')\n%checkpoint before")
    kernel.run("x = 2\nopen('data.txt', 'w').write('new')\n%checkpoint newer")
    kernel.run("x = 3\n%restore")  # without a name, the newest
    assert kernel.run("x").value == "2"
    reply = kernel.run("%restore before\nx, open('data.txt').read()")
    assert reply.value == "(1, 'old')"
    assert "checkpoint before" in reply.text()


def test_a_cell_with_a_checkpoint_can_run_again_unless_it_is_in_the_middle(
    kernel: LiveKernel,
) -> None:
    for _ in range(2):
        assert kernel.run("%checkpoint again").status == "ok"
    assert kernel.run("%checkpoints").text().split().count("again") == 1
    kernel.run("%drop again")
    assert "again" not in kernel.run("%checkpoints").text()
    kernel.run("%checkpoint late # before training\n%checkpoint a#b")
    assert {"late", "a#b"} <= set(kernel.run("%checkpoints # all").text().split())
    assert kernel.run("%restore late  # again").status == "ok"
    reply = kernel.run("z = 1\n%checkpoint middle\nz = 2")
    assert "before or after" in reply.text("stderr") + str(reply.of_kind("error"))
    assert "middle" not in kernel.run("%checkpoints").text()


def test_an_unknown_checkpoint_is_an_error_that_names_those_there_are(kernel: LiveKernel) -> None:
    kernel.run("%checkpoint known")
    reply = kernel.run("%restore unknown\nprint('not run')")
    assert reply.content["ename"] == "CheckpointError"
    assert "'known'" in reply.content["evalue"]
    assert reply.text() == ""


def test_without_a_checkpoint_there_is_nothing_to_restore(kernels: Path) -> None:
    with open_kernel(kernels / "empty") as kernel:
        for line in ("%restore", "%drop", "%restore late"):
            reply = kernel.run(line)
            assert reply.content["ename"] == "CheckpointError"
            assert reply.content["evalue"].startswith("There is no checkpoint.")
        for _ in range(16):
            kernel.run("%checkpoint")
        assert "%drop NAME" in kernel.run("%checkpoint").content["evalue"]
        assert "needs a name" in kernel.run("%drop").content["evalue"]


@pytest.mark.slow
def test_tab_offers_the_names_of_checkpoints_and_help_the_usage(kernel: LiveKernel) -> None:
    kernel.run("%checkpoint tab_one\n%checkpoint tab_two")
    for code in ("x = 1\n%restore tab", "%drop tab"):
        reply = kernel.ask("complete", code)
        assert reply["matches"] == ["tab_one", "tab_two"]
        assert reply["cursor_start"] == len(code) - 3
    assert "tab_two" in kernel.ask("complete", "%restore ")["matches"]
    (page,) = kernel.run("%restore?").content["payload"]
    assert "%restore [NAME]: return to a checkpoint" in page["data"]["text/plain"]


def test_what_cannot_be_copied_is_named_and_an_older_checkpoint_kept(kernel: LiveKernel) -> None:
    kernel.run("value = 5\n%checkpoint copied")
    kernel.run("import threading\nevent = threading.Event()")
    kernel.run("thread = threading.Thread(target=event.wait)\nthread.start()")
    for line in ("%checkpoint", "%checkpoint copied"):
        reply = kernel.run(line)
        assert reply.content["ename"] == "CheckpointError"
        assert "thread" in reply.content["evalue"].lower()
    kernel.run("event.set(); thread.join()")
    assert kernel.run("%restore copied\nvalue").value == "5"


def test_code_between_magics_keeps_its_line_numbers() -> None:
    cell = split_cell("%restore a\n\nx = 1\n%checkpoint  b \n")
    assert cell.before == (Magic("restore", "a"),)
    assert cell.code == "\n\nx = 1\n\n"
    assert cell.after == (Magic("checkpoint", "b"),)
    assert split_cell("%checkpoints_of = 1\n%%time").before == ()
    assert split_cell("%checkpoint").code == ""
