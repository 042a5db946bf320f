"""What the health endpoint says, and that a hostile client costs itself only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from otel_gpu.components.values import parse_endpoint
from otel_gpu.config.settings import HealthCheckSettings
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.runtime.supervision import Health
from otel_gpu.service.health_check import HealthCheck, Report
from tests.stopwatch import Stopwatch

GOOD, BAD = Health("collect", 0), Health("cuda", 3, "MemoryError")
DEADLINE_S = 20
Make = Callable[..., HealthCheck]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[HealthCheck] = []

    def check(
        *components: Health, is_live: bool = True, is_ready: bool = True, path: str = "/", host: str = "localhost"
    ) -> HealthCheck:
        settings = HealthCheckSettings(f"{host}:0", path)
        made.append(HealthCheck(settings, lambda: Report(is_live, is_ready, components or (GOOD,))))
        return made[-1]

    yield check
    for one in made:
        one.close()


def ask(check: HealthCheck, path: str = "/", method: str = "GET") -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(*check.address, timeout=DEADLINE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        assert response.getheader("Content-Type") == "application/json"
        return response.status, json.loads(body) if body else {}
    finally:
        connection.close()


def test_a_healthy_agent_says_so_as_the_collector_does(make: Make) -> None:
    status, body = ask(make(GOOD))

    assert status == 200
    assert body["status"] == "Server available"
    assert body["upSince"] <= time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 1))
    assert body["uptime"].endswith("s")
    assert (body["live"], body["ready"]) == (True, True)
    assert body["components"] == {"collect": {"healthy": True, "failures": 0}}


@pytest.mark.parametrize(
    "is_live, is_ready, components, statuses",
    (
        (True, True, (GOOD,), {"/": 200, "/live": 200, "/ready": 200}),
        (True, True, (GOOD, BAD), {"/": 503, "/live": 200, "/ready": 200}),
        (True, False, (GOOD,), {"/": 503, "/live": 200, "/ready": 503}),
        (False, True, (GOOD,), {"/": 503, "/live": 503, "/ready": 200}),
    ),
)
def test_liveness_and_readiness_are_asked_for_apart(
    is_live: bool, is_ready: bool, components: tuple[Health, ...], statuses: dict[str, int], make: Make
) -> None:
    check = make(*components, is_live=is_live, is_ready=is_ready)

    assert {path: ask(check, path)[0] for path in statuses} == statuses


def test_parts_of_one_name_are_told_together_and_without_their_messages(make: Make) -> None:
    status, body = ask(make(Health("cuda", 1), BAD, GOOD))

    assert status == 503
    assert body["components"]["cuda"] == {"healthy": False, "failures": 4}
    assert "MemoryError" not in json.dumps(body)


def test_the_path_is_the_configured_one(make: Make) -> None:
    check = make(path="/health/")

    assert [ask(check, p)[0] for p in ("/health", "/health/", "/health/live", "/health?x=1", "/", "/live")] == [
        200,
        200,
        200,
        200,
        404,
        404,
    ]


def test_only_questions_are_answered(make: Make) -> None:
    check = make()

    assert ask(check, method="HEAD") == (200, {})
    assert ask(check, method="POST")[0] == 405
    assert ask(check, "/nothing")[0] == 404


@pytest.mark.parametrize("request_", (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"\n\n", b"GET / FTP/1.0\r\n\r\n"))
def test_what_is_no_request_is_refused(request_: bytes, make: Make) -> None:
    with socket.create_connection(make().address, DEADLINE_S) as client:
        client.sendall(request_)

        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_request_without_an_end_is_answered_when_it_is_too_long(make: Make) -> None:
    client = socket.create_connection(make().address, DEADLINE_S)
    with client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")


def test_clients_that_say_nothing_do_not_hold_up_others(make: Make) -> None:
    check = make()
    with contextlib.ExitStack() as stack:
        for _ in range(90):
            client = stack.enter_context(socket.create_connection(check.address, DEADLINE_S))
            client.sendall(b"GET / HT")

        watch = Stopwatch()
        assert ask(check)[0] == 200

        # At most a second, which is for how long too many a second are left waiting.
        assert watch.seconds() < 3


def test_a_silent_client_is_sent_away(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_gpu.exporters.http_listener._ANSWER_S", 0.2)
    with socket.create_connection(make().address, DEADLINE_S) as client:
        assert client.recv(1) == b""


def test_a_flood_takes_little_of_the_agent(make: Make) -> None:
    check, over = make(), threading.Event()
    descriptors = len(os.listdir("/proc/self/fd"))

    def flood() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(check.address, 0.2) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")

    floods = [threading.Thread(target=flood) for _ in range(4)]
    thread = next(t for t in threading.enumerate() if t.name == "otel-gpu-health_check")
    clock = time.pthread_getcpuclockid(thread.ident)
    began, used_before_s = time.monotonic(), time.clock_gettime(clock)
    for one in floods:
        one.start()
    time.sleep(3)
    used_s, elapsed_s = time.clock_gettime(clock) - used_before_s, time.monotonic() - began
    over.set()
    for one in floods:
        one.join()

    assert used_s < 0.2 * elapsed_s
    assert ask(check)[0] == 200
    assert len(os.listdir("/proc/self/fd")) < descriptors + 70


def test_it_stops_at_once_whoever_is_connected(make: Make) -> None:
    check = make()
    with socket.create_connection(check.address, DEADLINE_S) as client:
        client.sendall(b"GET")
        watch = Stopwatch()
        check.close()
        check.close()

        assert watch.seconds() < 2


def test_a_port_that_is_taken_is_one_clear_line(make: Make) -> None:
    _, port = make().address

    with pytest.raises(OtelGpuError, match=r"health cannot be told at localhost:\d+: Address already in use; set ext"):
        HealthCheck(HealthCheckSettings(f"localhost:{port}"), lambda: Report(True, True, ()))


def test_it_listens_where_it_is_told_to(make: Make) -> None:
    assert make().address[0] == "127.0.0.1"
    assert make(host="").address[0] in {"0.0.0.0", "::"}
    assert make(host="[::1]").address[0] == "::1"
    assert parse_endpoint("[::1]:13133", "") == ("::1", 13133)


@pytest.mark.parametrize(
    "endpoint", ("localhost", "localhost:", "localhost:x", "localhost:65536", "http://localhost:1")
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="is no HOST:PORT; write one such as"):
        HealthCheckSettings(endpoint)


@pytest.mark.parametrize("path", ("", "health", "/a b", "/a\n", "/\u20ac"))
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is no path"):
        HealthCheckSettings(path=path)
