"""vLLM's API server and its engine process: the requests of the one are joined with the steps of the other."""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from otel_gpu.signals.spans import Span
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.requests import Following
from tests.e2e.truth import Truth
from tests.waiting import until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]
STARTS_S = 1200
LAUNCHES = "gpu.cuda.kernel.launch.calls"
_ADD_UP = (
    LAUNCHES,
    "gpu.cuda.graph.launch.calls",
    "gpu.cuda.memory.copy.calls.h2d",
    "gpu.cuda.memory.copy.bytes.h2d",
    "gpu.cuda.memory.copy.calls.d2h",
    "gpu.cuda.memory.copy.bytes.d2h",
    "gpu.cuda.memory.copy.calls.d2d",
)


class Server:
    """vLLM, serving."""

    def __init__(self, program: Program, directory: Path) -> None:
        said = program.event("ready", STARTS_S)
        self.port, self.server, self.engine = (int(str(said[name])) for name in ("port", "server", "engine"))
        self._truth = directory / f"truth-{self.engine}.json"

    def ask(self, tokens: int) -> str:
        """Ask for tokens, as a stream, and return the request's trace id."""
        trace = secrets.token_hex(16)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        body = {"model": "tiny", "prompt": "the quick brown fox", "max_tokens": tokens, "stream": True}
        head = {"Content-Type": "application/json", "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
        connection.request("POST", "/v1/completions", json.dumps({**body, "ignore_eos": True, "temperature": 0}), head)
        answer = connection.getresponse()
        assert answer.read().rstrip().endswith(b"data: [DONE]")
        assert answer.status == 200
        connection.close()
        return trace

    def truth(self) -> Truth:
        """Return what the engine did so far, as the driver counted it."""
        self._truth.unlink(missing_ok=True)
        os.kill(self.engine, signal.SIGUSR2)
        until(self._truth.exists, "no truth from the engine")
        return Truth.read(self._truth)


@pytest.fixture(scope="module", params=["eager", "graphs"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp(f"vllm_serve_{request.param}")
    command = [ground.vllm_python(), ground.PROGRAMS / "vllm_serve.py", directory]
    with ExitStack() as compiling:
        if request.param == "graphs":
            command += ["--graphs", "--compiled", compiling.enter_context(ground.compiling_with_vllm())]
        with Program(command, directory, ground.vllm_environment()) as program:
            try:
                server = Server(program, directory)
                compiling.close()
                yield server
            finally:
                program.process.stdin.close()
                program.wait()


def number(span: Span, name: str) -> int:
    return int(dict(span.attributes).get(name, 0))  # type: ignore[call-overload]


def test_requests_are_joined_with_the_engines_steps(server: Server) -> None:
    server.ask(2)
    with Following([server.server, server.engine]) as following:
        following.wait_followed()
        before = server.truth()
        chance = random.Random(1)
        asked: dict[str, int] = {}

        def ask(tokens: int) -> None:
            asked[server.ask(tokens)] = tokens

        threads = [threading.Thread(target=ask, args=(chance.randint(2, 24),)) for _ in range(40)]
        for thread in threads:
            thread.start()
            time.sleep(chance.expovariate(100))
        for thread in threads:
            thread.join(DEADLINE_S)
        following.wait_spans(len(asked))
        following.end()
        after = server.truth()

    requests = {span.context.trace_id.hex(): span for span in following.servers}
    assert requests.keys() == asked.keys()
    assert {dict(span.attributes)["otel_gpu.attribution"] for span in requests.values()} == {"share"}

    # Every token took a step, to which the request is linked.
    steps = [span for span in following.spans if span.name == "gpu step"]
    linked = Counter(link.context.trace_id.hex() for step in steps for link in step.links)
    assert {trace for trace, tokens in asked.items() if linked[trace] < tokens} == set()
    assert {dict(step.attributes)["otel_gpu.linked"] for step in steps} <= {"exact", "superset"}
    assert {step.context.trace_id for step in steps}.isdisjoint({span.context.trace_id for span in following.servers})
    by_id = {(span.context.trace_id, span.context.span_id) for span in following.servers}
    assert {(link.context.trace_id, link.context.span_id) for step in steps for link in step.links} <= by_id

    # The shares are what the steps did, and with what is nobody's all that the driver saw.
    for name in _ADD_UP:
        assert sum(number(span, name) for span in requests.values()) == sum(number(step, name) for step in steps)
    launched = after.launches.total() - before.launches.total()
    assert sum(number(step, LAUNCHES) for step in steps) + sum(following.unattributed().values()) == launched
    assert (
        sum(number(step, "gpu.cuda.graph.launch.calls") for step in steps)
        == after.graph_launches - before.graph_launches
    )
