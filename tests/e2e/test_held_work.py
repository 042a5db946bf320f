"""Is a batch of launches told whole, whoever else comes and goes while it runs?"""

from __future__ import annotations

import http.client
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from otel_gpu.signals.spans import Span
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.requests import LAUNCHES, Following, Observer
from tests.e2e.test_requests import Load, end, number_of, server

SERVED = [("asgi", ("asyncio", "h11")), ("traced", ("asyncio",))]


def launches_of_batches(following: Following) -> list[int]:
    return sorted(_launches(span) for span in following.spans if span.name == "gpu batch")


def _launches(span: Span) -> int:
    return int(dict(span.attributes)[LAUNCHES])  # type: ignore[call-overload]


class Asking:
    """Asks one request, in a thread of its own, and waits until the program says how far it has come."""

    def __init__(self, program: Program, port: int, number: int, how: str) -> None:
        self._program = program
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._thread = threading.Thread(target=self._ask, args=(f"/work/{number}/3/{how}",))
        self._thread.start()
        program.event(how)

    def _ask(self, path: str) -> None:
        self._connection.request("GET", path)
        self._connection.getresponse().read()

    def go_on(self, number: signal.Signals) -> None:
        """Let the request end, and wait for its answer and until the program is done with it."""
        self._program.process.send_signal(number)
        self._thread.join()
        # An event loop frees a request's task once it has answered it, before it reads again.
        self._ask("/work/9/0/plain")
        self._connection.close()


@pytest.mark.parametrize(("name", "arguments"), SERVED, ids=["ours", "own spans"])
@pytest.mark.parametrize("other", ["comes", "goes"])
def test_a_batch_is_told_whole_when_another_request(
    tmp_path: Path, observer: Observer, name: str, arguments: tuple[str, ...], other: str
) -> None:
    """What a task does while its request is alone is the request's; else it is once the task has ended."""
    with (
        server(tmp_path, name, *arguments) as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        if other == "comes":
            first = Asking(program, port, 1, "pauses")
            second = Asking(program, port, 2, "lingers")
            first.go_on(signal.SIGUSR1)
            second.go_on(signal.SIGUSR2)
        else:
            second = Asking(program, port, 2, "lingers")
            first = Asking(program, port, 1, "pauses")
            second.go_on(signal.SIGUSR2)
            first.go_on(signal.SIGUSR1)
        end(program, following)

        assert launches_of_batches(following) == [6]
        assert following.unattributed() == {}


@pytest.mark.parametrize("arguments", [("asyncio", "h11"), ("uvloop", "httptools")], ids=["asyncio", "uvloop"])
def test_what_a_requests_own_task_does_is_never_held(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """From the first request on that is read when the agent has come: the program ends before the task does."""
    with server(tmp_path, "asgi", *arguments) as (program, port), Following([program.pid]) as following:
        following.wait_followed_at_first()
        with ExitStack() as clients:
            for number in (1, 2):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(b"GET /work/%d/3/launches_and_lingers HTTP/1.1\r\nHost: x\r\n\r\n" % number)
                program.event("lingers")
            program.process.kill()
            program.process.wait(DEADLINE_S)
        following.wait_spans(2)
        following.end()

        assert {number_of(s): _launches(s) for s in following.servers} == {1: 3, 2: 3}
        assert following.unattributed() == {}


def test_a_batch_of_several_tasks_is_told_once_all_have_ended(tmp_path: Path, observer: Observer) -> None:
    with (
        server(tmp_path, "asgi", "asyncio", "h11") as (program, port),
        Following([program.pid], observer=observer) as following,
    ):
        following.wait_followed()
        load = Load(port, ("parts",))
        # Another one goes on all the time, so that each task holds what it does.
        other = Asking(program, port, 1_000_000, "lingers")
        load.run(80)
        other.go_on(signal.SIGUSR2)
        end(program, following)

        assert launches_of_batches(following) == sorted(2 * times for times in load.asked.values())
        assert following.unattributed() == {}
