"""Code cannot load the kernel's line disciplines for terminals, which few programs ever use."""

from __future__ import annotations

from cellblock import CodeBlock
from tests.sandbox.probes import sandbox

CODE = """import fcntl, os, struct
TIOCGETD, TIOCSETD = 0x5424, 0x5423
_, terminal = os.openpty()
print(struct.unpack("i", fcntl.ioctl(terminal, TIOCGETD, bytes(4))))
fcntl.ioctl(terminal, TIOCSETD, struct.pack("i", 0))"""


def test_the_line_discipline_of_a_terminal_cannot_be_set() -> None:
    exec(CODE, {})  # a process outside may do it
    with sandbox() as executor:
        result = executor.execute_code_blocks([CodeBlock(CODE, "python")])
    assert result.stdout == "(0,)\n"
    assert "PermissionError" in result.stderr
