"""What a client sees of cells: streams, values, displays, errors, completion, inspection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


def test_streams_and_the_value_arrive_in_their_order(kernel: LiveKernel) -> None:
    reply = kernel.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert reply.text() == "out\n"
    assert reply.text("stderr") == "err\n"
    assert reply.value == "42"
    assert reply.messages[-2][0] == "execute_result"
    assert reply.status == "ok"


def test_a_file_beside_the_notebook_is_named_with_the_next_step(kernel: LiveKernel) -> None:
    (kernel.folder / "data.csv").touch()
    told = "data.csv is in the notebook's folder, but cells see only the folder"
    for code in ("open('data.csv')", "!cat data.csv", "%%sh\ncat data.csv"):
        note = kernel.run(code).text("stderr").splitlines()[-1]
        assert note.startswith(told), code
        assert "--work-dir ." in note


def test_output_arrives_while_the_cell_runs(kernel: LiveKernel) -> None:
    def go_on(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            (kernel.work_dir / "go").touch()

    code = "import os, time\nprint('first', flush=True)\n"
    code += "while not os.path.exists('go'): time.sleep(0.01)\nprint('last')"
    assert kernel.run(code, on_message=go_on).text() == "first\nlast\n"


def test_numbers_of_the_client_and_of_tracebacks_agree_and_silent_cells_have_none(
    kernel: LiveKernel,
) -> None:
    failed = kernel.run("1/0")
    number = failed.content["execution_count"]
    assert f"In[{number}]" in "".join(failed.content["traceback"]).replace("[ ", "[")
    silent = kernel.run("print('unseen'); quiet = 1; 7", silent=True)
    assert {kind for kind, _ in silent.messages} <= {"status"}
    assert kernel.run("quiet", store_history=False).value == "1"
    assert kernel.run("3").of_kind("execute_result")[0]["execution_count"] == number + 1


def test_an_exception_has_its_name_and_a_traceback_with_colours(kernel: LiveKernel) -> None:
    reply = kernel.run("def divide():\n    return 1 / 0\ndivide()")
    (error,) = reply.of_kind("error")
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert "\x1b[" in error["traceback"][0]
    assert reply.content["ename"] == "ZeroDivisionError"
    assert reply.text("stderr") == ""
    # As in ipykernel: colours that are readable on light and on dark backgrounds.
    assert str(kernel.run("get_ipython().colors").value).lower() == "'neutral'"
    reply = kernel.run("class Bad:\n    def __repr__(self): raise ValueError('bad text')\nBad()")
    assert [error["ename"] for error in reply.of_kind("error")] == ["ValueError"]
    assert (reply.status, reply.content["ename"]) == ("error", "ValueError")
    reply = kernel.run("raise ExceptionGroup('both', [ValueError(1), KeyError(2)])")
    assert reply.content["ename"] == "ExceptionGroup"
    assert "KeyError: 2" in reply.text("stderr")
    assert reply.of_kind("error") == []


def test_top_level_await_and_magics_work_and_tasks_go_on_in_the_next_cell(
    kernel: LiveKernel,
) -> None:
    kernel.run("import asyncio\ntask = asyncio.create_task(asyncio.sleep(0, 'done'))")
    assert kernel.run("await task").value == "'done'"
    assert kernel.run("asyncio.run(asyncio.sleep(0, 'ran'))").value == "'ran'"
    assert kernel.run("%%bash\necho from bash").text() == "from bash\n"
    assert kernel.run("!printf '\\033[31mred\\033[0m'").text() == "\x1b[31mred\x1b[0m"


@pytest.mark.slow
def test_exit_is_an_error_so_that_later_cells_do_not_run(kernel: LiveKernel) -> None:
    codes = ("import sys\nsys.exit()", "import sys\nsys.exit(3)", "exit", "quit()", "exit()\n2")
    for code in (*codes, "%reset -f", *codes):
        reply = kernel.run(code)
        expected = ("ok", None) if code == "%reset -f" else ("error", "SystemExit")
        assert (reply.status, reply.content.get("ename")) == expected, code
    assert kernel.run("1 + 1").value == "2"


def test_cells_that_wait_behind_one_that_fails_do_not_run(kernel: LiveKernel) -> None:
    codes = ["1 / 0", *(f"open('ran{number}', 'w').close()" for number in range(5))]
    requests = [kernel.client.execute(code) for code in codes]
    statuses = dict[str, str]()
    while len(statuses) < len(requests):
        reply = kernel.client.get_shell_msg(timeout=None)
        if (request := reply["parent_header"]["msg_id"]) in requests:
            statuses[request] = reply["content"]["status"]
    assert [*statuses.values()] == ["error", *5 * ["aborted"]]
    assert not [*kernel.work_dir.glob("ran*")]
    assert kernel.run("6 * 7").value == "42"


def test_a_traceback_that_code_shows_itself_is_no_failure(kernel: LiveKernel) -> None:
    reply = kernel.run("try:\n    1 / 0\nexcept ZeroDivisionError: get_ipython().showtraceback()")
    assert reply.of_kind("error")[0]["ename"] == "ZeroDivisionError"
    assert reply.status == "ok"


def test_a_debugger_is_answered_by_the_client(kernel: LiveKernel) -> None:
    kernel.run("def fail(value):\n    inner = value + 1\n    1 / 0")
    kernel.run("fail(41)")
    reply = kernel.run("%debug", answers=["p inner", "q"])
    assert "42" in reply.text().split("\n")


def test_a_display_can_be_updated_and_cleared(kernel: LiveKernel) -> None:
    reply = kernel.run(
        "from IPython.display import HTML, clear_output, display\n"
        "handle = display(HTML('<b>1</b>'), display_id=True)\n"
        "handle.update(HTML('<b>2</b>'))\n"
        "clear_output(wait=True)"
    )
    (shown,), (updated,) = reply.of_kind("display_data"), reply.of_kind("update_display_data")
    assert shown["data"]["text/html"] == "<b>1</b>"
    assert updated["data"]["text/html"] == "<b>2</b>"
    assert shown["transient"] == updated["transient"] != {}
    assert reply.of_kind("clear_output") == [{"wait": True}]
    assert reply.text() == ""


def test_a_plot_and_a_large_display_arrive_whole_and_leave_no_file(kernel: LiveKernel) -> None:
    reply = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    (shown,) = reply.of_kind("display_data")
    assert shown["data"]["image/png"].startswith("iVBOR")
    assert list(kernel.work_dir.glob("*.png")) == []
    reply = kernel.run("display({'text/plain': 'é' * 4_500_000}, raw=True)")
    (shown,) = reply.of_kind("display_data")
    assert len(shown["data"]["text/plain"]) == 4_500_000


@pytest.mark.slow
def test_displays_over_the_limit_are_named_and_later_cells_are_not_affected(
    kernel: LiveKernel,
) -> None:
    reply = kernel.run(
        "for _ in range(3):\n    display({'text/plain': 'a' * 25_000_000}, raw=True)\n1 / 0"
    )
    assert len(reply.of_kind("display_data")) == 2
    assert "dropped" in reply.text("stderr")
    assert reply.content["ename"] == "ZeroDivisionError"
    assert len(kernel.run("display(1)").of_kind("display_data")) == 1


def test_text_that_is_no_unicode_and_numbers_that_json_lacks_are_replaced(
    kernel: LiveKernel,
) -> None:
    reply = kernel.run(
        "display({'text/plain': '\\ud800|', 'application/json': [float('nan')]}, raw=True)"
    )
    (shown,) = reply.of_kind("display_data")
    assert shown["data"] == {"text/plain": "\ufffd|", "application/json": ["NaN"]}


def test_completion_inspection_pager_and_expressions_know_the_session(kernel: LiveKernel) -> None:
    kernel.run("table = {'column': 1}\ndef area(width):\n    'Return an area.'")
    completed = kernel.ask("complete", "table['")
    assert "column" in completed["matches"][0]
    inspected = kernel.ask("inspect", "area(", 5)
    assert inspected["found"]
    assert "Return an area." in inspected["data"]["text/plain"]
    assert not kernel.ask("inspect", "no_such_name", 5)["found"]
    (payload,) = kernel.run("print?").content["payload"]
    assert payload["source"] == "page"
    assert "Prints the values" in payload["data"]["text/plain"]
    values = kernel.run("x = 4", user_expressions={"double": "x * 2", "bad": "1 / 0"})
    found = values.content["user_expressions"]
    assert found["double"]["data"]["text/plain"] == "8"
    assert found["bad"]["ename"] == "ZeroDivisionError"


def test_forged_reports_and_broken_hooks_end_nothing(kernel: LiveKernel) -> None:
    kernel.run(
        "kind = 'application/vnd.cellblock.kernel+json'\n"
        "send = get_ipython().cellblock_kernel._send\n"
        "for value in (1, {}, {'text': 3}, {'text': 'x', 'last': True},\n"
        "              {'text': '[\"error\", 5]', 'last': True},\n"
        "              {'text': '[\"status\", {}]', 'last': True},\n"
        "              {'text': '[' * 100_000, 'last': True}):\n"
        "    send({kind: value})"
    )
    assert kernel.run("'still here'").value == "'still here'"
    kernel.run("get_ipython().display_pub.publish = get_ipython().cellblock_kernel._send")
    reply = kernel.run("display(1)")
    assert reply.of_kind("display_data")[0]["data"] == {"text/plain": "1"}
    kernel.run("get_ipython().display_pub.publish = get_ipython().cellblock_kernel._publish")


def test_no_debugger_is_announced_and_its_requests_are_refused(kernel: LiveKernel) -> None:
    info = kernel.ask("kernel_info")
    assert "debugger" not in info["supported_features"]
    content = {"type": "request", "seq": 1, "command": "initialize"}
    request = kernel.client.session.msg("debug_request", content)
    kernel.client.control_channel.send(request)
    while (reply := kernel.client.get_control_msg(timeout=None))["msg_type"] != "debug_reply":
        pass
    assert reply["content"]["success"] is False


def test_much_output_arrives_in_few_messages_that_end_with_lines(kernel: LiveKernel) -> None:
    reply = kernel.run("for i in range(20_000): print('line', i)\nprint('end', end='')")
    texts = [content["text"] for content in reply.of_kind("stream")]
    assert "".join(texts) == "".join(f"line {i}\n" for i in range(20_000)) + "end"
    assert [text[-1:] for text in texts[:-1]] == ["\n"] * (len(texts) - 1)
    reply = kernel.run("import sys\nfor i in range(9): print(i, flush=True)")
    assert len(reply.of_kind("stream")) < 9


def test_output_before_input_is_shown_before_the_question(kernel: LiveKernel) -> None:
    shown = list[str]()
    reply = kernel.run(
        "import sys\nfor i in range(400): print(i, file=(sys.stdout, sys.stderr)[i % 2])\n"
        "name = input()\nprint('last', file=sys.stderr)",
        answers=["Ada"],
        on_message=lambda message: shown.append(message["content"].get("text", "")),
    )
    texts = [text for text in shown if text]
    assert ("".join(texts[:-1]), texts[-1]) == ("".join(f"{i}\n" for i in range(400)), "last\n")
    assert reply.status == "ok"


def test_libraries_know_that_they_are_shown_by_jupyter(kernel: LiveKernel) -> None:
    reply = kernel.run("import rich.table\ntable = rich.table.Table('a')\nrich.print(table)")
    assert "<pre" in reply.of_kind("display_data")[0]["data"]["text/html"]
    value = kernel.run("import pandas as pd; pd.cut([n / 7 for n in range(90)], 12)").value
    assert len(value.splitlines()) == 3  # it is not wrapped at 80 columns
    names = "type(get_ipython()).__name__, get_ipython() is type(get_ipython()).instance()"
    assert kernel.run(names).value == "('ZMQInteractiveShell', True)"
