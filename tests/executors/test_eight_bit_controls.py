"""Controls of 8 bits, which some terminals obey as they obey ESC, never leave a result."""

from __future__ import annotations

import pytest

from cellblock import CodeBlock
from cellblock.executors.displays import strip_terminal_codes
from cellblock.sync import SandboxSessionCodeExecutor

CONTROLS = "".join(map(chr, range(0x80, 0xA0)))


def test_eight_bit_controls_are_replaced_in_output() -> None:
    code = f"print({CONTROLS!r})\nprint('\\x9b31mred')\nraise ValueError('\\x9d0;title\\x9c')"
    with SandboxSessionCodeExecutor(timeout=30) as session:
        result = session.execute_code_blocks([CodeBlock(code, "python")])
    assert result.output.startswith("\ufffd" * len(CONTROLS) + "\n\ufffd31mred\n")
    assert not set(CONTROLS) & set(result.output)


@pytest.mark.parametrize("text", [CONTROLS, f"\x1b[1m{CONTROLS}"])
def test_eight_bit_controls_are_replaced_in_text_of_kernels(text: str) -> None:
    assert strip_terminal_codes(text) == "\ufffd" * len(CONTROLS)
