"""What a limit of the runtime server cannot hold is refused over HTTP, with the limit's name."""

from __future__ import annotations

import resource
from pathlib import Path

from cellblock.server.owners import Overrides

from .rest.requesting import run
from .serving import serving

_MOST = 100  # sessions; far fewer fit


def test_a_session_that_does_not_fit_is_refused_and_the_others_stay(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--max-sessions", str(_MOST)) as server:
        # For servers of sessions that start from now on: a policy of its own means a new one.
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        overrides = Overrides(policy={"environment": {"A": "1"}})
        with server.client(server.add_key("full", overrides=overrides), "/v1") as client:
            count = 0
            while (answer := client.post("/sessions", json={"id": f"s{count}"})).is_success:
                run(client, f"/sessions/s{count}", f"x = {count}")
                count += 1
                assert count < _MOST
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
            assert answer.json()["error"]["code"] == "ServerFull"
            assert "RLIMIT_NOFILE" in answer.json()["error"]["message"]
            for number in range(count):
                assert run(client, f"/sessions/s{number}", "x")["stdout"] == f"{number}\n"
            client.delete("/sessions/s0").raise_for_status()
            client.delete("/sessions/s1").raise_for_status()
            assert run(client, "", "6 * 7")["stdout"] == "42\n"
