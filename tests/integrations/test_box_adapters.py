"""Frameworks without a public suite use a sandbox as theirs: what happens in it, in their terms.

tests/integrations/test_pages.py runs an agent of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import PINS, SCENARIOS, run_in_framework

pytestmark = [pytest.mark.slow, pytest.mark.pythons, pytest.mark.network, pytest.mark.timeout(300)]
EXPECTED = {
    "strands": r"""
{'stdout': 'ä/tmp\n', 'stderr': 'err�'} 137 True
Execution timed out after 2 seconds 'partial\n'
Execution timed out after 0.0 seconds ''
42

True
[FileInfo(name='b', is_dir=False, size=256)]
FileNotFoundError
FileNotFoundError
SandboxPathNotFoundError
SandboxPathNotFoundError
[Errno 21] Is a directory: 'a' [FileInfo(name='b', is_dir=False, size=256)]
[]
sandbox must be one of cellblock, such a
""",
    "openai-agents": r"""
'out\n' ShellCallOutcome(type='exit', exit_code=3)
'partial\n' ShellCallOutcome(type='timeout', exit_code=None)
True b'given'
['/workspace/a/b.txt']
b'5\n' 137
126
WorkspaceReadNotFoundError
InvalidManifestPathError
WorkspaceArchiveWriteError
ExecTimeoutError
ExecTransportError
commands cannot run as the user 'nobody-here' here: pass users=True
False
b'changed\n/workspace\ngiven.txt\nkept\n'
b'left here'
1
""",
    "google-adk": r"""
/workspace ExecutionResult(exit_code=3, stdout='out\n', stderr='err\n', timed_out=False)
ExecutionResult(exit_code=124, stdout='partial\n', stderr='', timed_out=True)
b'text'
[Errno 2] No such file or directory: 'none'
'1,2\n' '' 0 [File(name='o.png', content=b'', mime_type='image/png')]
1 6
 ZeroDivisionError: division by zero
BoxGone
""",
    "ag2": r"""
/workspace None
3 ['out', 'err']
127 ['none: not found']
126 ["[Errno 13] Permission denied: '/etc/passwd'"]
124 ['partial']
0 ['�']
text
/a is not in the work folder.
../a is not in the work folder.
[Errno 21] Is a directory: 'folder'
42
run_shell_command
""",
    "agent-framework": r"""
'/tmp\nlater\n' '5\n' 1 False
'partial\n' '' 124 True
'/tmp\n' '' 0 False
/tmp True
'/workspace\n\n'
cellblock_codeact - rate(currency, day): Return a rate.
[('execute_code', 'always_require')]
{'loop': True, 'rate': 2.5}
2.5
TypeError
_FunctionArgumentValidationError
input() is not available here.
""",
    "mini-swe-agent": r"""
'5\nerr\n' 3 ''
'partial\n' -1 "Command 'echo partial; sleep 100' timed out after 2 seconds"
TimeoutExpired
'' -1 "[Errno 2] No such file or directory: '/none'"
FileNotFoundError
'/tmp\n' 0 ''
'COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n' 1 ''
{'exit_status': 'Submitted', 'submission': 'the answer\n'}
t Linux False
cellblock.integrations.mini_swe_agent.CellblockBashEnvironment
This box was closed
True
'0 6\n99\n' 0 {'open_files': 99}
ImageUnusable
""",
    "managed-agents": r"""
bash '/tmp\n'
bash failed: '5\n/tmp\n'
bash failed: 'partial\n\nThe command timed out.'
bash 'bash session restarted'
bash '/workspace\n'
write 'wrote 12 bytes to a/b.txt'
edit failed: 'edit: old_string appears 2 times in a/b.txt.'
edit 'wrote 8 bytes to a/b.txt'
read '2\n2\n'
read failed: "none: [Errno 2] No such file or directory: 'none'"
glob 'a/b.txt'
glob 'no matches'
grep 'a/b.txt:1:one\n'
grep 'no matches'
read failed: "made: [Errno 2] No such file or directory: 'made'"
""",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_happens_in_the_sandbox_is_said_in_the_terms_of_the_framework(
    name: str, tmp_path: Path
) -> None:
    scenario = SCENARIOS / f"{name.replace('-', '_')}_use.py"
    printed = run_in_framework(PINS[name], tmp_path, scenario, tmp_path)
    assert printed.endswith(EXPECTED[name].removeprefix("\n"))
