"""SandboxFusion's own client, synchronous and asynchronous."""

import asyncio
import sys

from sandbox_fusion import RunCodeRequest, run_code, run_code_async, set_sandbox_endpoint

set_sandbox_endpoint(sys.argv[1])
done = run_code(RunCodeRequest(code="print(int(input()) + 1)", language="python", stdin="41"))
print(done.status.value, done.run_result.stdout)
late = RunCodeRequest(code="while True: pass", language="python", run_timeout=1)
done = asyncio.run(run_code_async(late))
print(done.status.value, done.run_result.status.value)
