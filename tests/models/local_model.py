"""A real language model on loopback, behind llama.cpp's server: SmolLM2-135M.

It is small and often wrong: tests look at what arrives, never at whether it is clever.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_BUILD_SECONDS = 600
# Runs in the environment that .ci/local-model made. Ends with the test process. One thread: two
# wait for each other, and take 20 times as long where other tests use the processors.
_SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.use_jinja = True
params.chat_template = sys.argv[2]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
# The model's own template leaves tools out.
_CHAT_TEMPLATE = r"""
{%- if tools %}
{{- '<|im_start|>system\nYou may call these functions:\n<tools>' }}
{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' }}{{- call.function.name }}
{{- '", "arguments": ' }}{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""".strip()


@contextlib.contextmanager
def local_model() -> Generator[str]:
    """Run the model and yield the base URL of its server.

    Skip the test if the model cannot be had, unless the variable CI is set.
    """
    folder = _find_folder()
    (model,) = folder.glob("*.gguf")
    with subprocess.Popen(
        [folder / "venv/bin/python", "-c", _SERVER, model, _CHAT_TEMPLATE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            # llama.cpp may print before.
            lines = iter(process.stdout.readline, "")
            address = next((line.strip() for line in lines if line.startswith("http")), None)
            if address is None:
                raise RuntimeError(f"The local model's server ended with {process.wait()}.")
            yield f"{address}/v1"
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def _find_folder() -> Path:
    script = subprocess.run(
        [_ROOT / ".ci/local-model", sys.executable],
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if script.returncode == 0:
        return Path(script.stdout.strip())
    reason = f"The local model cannot be had: {script.stderr.strip()[-500:]}"
    if os.environ.get("CI"):
        raise RuntimeError(reason)
    pytest.skip(reason)
