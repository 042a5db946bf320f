"""Are calls of gRPC for Python requests with their method and status, and is nothing charged to the wrong one?"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from pathlib import Path

import grpc
import pytest

from otel_gpu.signals.spans import Span
from tests.e2e.requests import LAUNCHES, Following, Observer
from tests.e2e.test_requests import end, owned, server

TRACE = "0af7651916cd43dd8448eb211c80319c"


def _parent(number: int) -> str:
    """Return the name of the caller's span, which says which call it is: requests have no path that could."""
    return f"{number:016x}"


def _call(channel: grpc.Channel, number: int, times: int, method: str = "Do") -> None:
    trace = (("traceparent", f"00-{TRACE}-{_parent(number)}-01"),)
    asked = f"{number}/{times}".encode()
    if method == "Stream":
        assert list(channel.unary_stream(f"/work.Work/{method}")(asked, metadata=trace)) == [b"part"] * times
    else:
        assert channel.unary_unary(f"/work.Work/{method}")(asked, metadata=trace) == b"done"


def _ask(channel: grpc.Channel, number: int, times: int, method: str) -> None:
    """Make a call of any kind; it says who it is by the caller's span."""
    if method != "Chat":
        return _call(channel, number, times, method)
    trace = (("traceparent", f"00-{TRACE}-{_parent(number)}-01"),)
    asked = (str(number).encode() for _ in range(times))
    assert list(channel.stream_stream("/work.Work/Chat")(asked, metadata=trace)) == [b"part"] * times
    return None


def _charges(spans: list[Span]) -> Counter[int]:
    charged: Counter[int] = Counter()
    for span in spans:
        charged[int(span.parent_id.hex(), 16)] += int(dict(span.attributes).get(LAUNCHES, 0))  # type: ignore[call-overload]
    return charged


def test_calls_that_come_one_after_another_own_their_launches(tmp_path: Path, observer: Observer) -> None:
    with server(tmp_path, "grpc_server") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        asked = {number: number % 5 + 1 for number in range(1, 41)}
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for number, times in asked.items():
                _call(channel, number, times, ("Do", "Stream")[number % 2])
        following.wait_spans(len(asked))
        end(program, following)

        assert _charges(following.servers) == asked
        assert following.unattributed() == {}
        for span in following.servers:
            attributes = dict(span.attributes)
            assert attributes["rpc.system.name"] == "grpc"
            assert attributes["rpc.method"] == f"work.Work/{('Do', 'Stream')[int(span.parent_id.hex(), 16) % 2]}"
            assert attributes["rpc.response.status_code"] == "OK"
            assert span.context.trace_id.hex() == TRACE


def test_calls_at_once_and_calls_that_are_refused_charge_nothing_wrongly(tmp_path: Path, observer: Observer) -> None:
    with server(tmp_path, "grpc_server") as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        asked: dict[int, int] = {}
        numbers = itertools.count(1)

        def client() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
                for _ in range(40):
                    number = next(numbers)
                    asked[number] = number % 5 + 1
                    _call(channel, number, asked[number], ("Do", "Stream")[number % 2])

        threads = [threading.Thread(target=client) for _ in range(6)]
        for thread in threads:
            thread.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for method in ("Nothing", "Do"):
                with pytest.raises(grpc.RpcError):
                    _call(channel, 1_000_000, 0, method)
        for thread in threads:
            thread.join()
        following.wait_spans(len(asked) + 2)
        end(program, following)

        charged = _charges(following.servers)
        assert {n: c for n, c in charged.items() if c and c != asked.get(n)} == {}
        assert owned(following) + sum(following.unattributed().values()) == following.launches()
        statuses = Counter(str(dict(span.attributes)["rpc.response.status_code"]) for span in following.servers)
        assert statuses == {"OK": len(asked), "UNIMPLEMENTED": 1, "NOT_FOUND": 1}


KINDS = ("Do", "Stream", "Gather", "Chat")


@pytest.mark.parametrize(("name", "connections"), [("grpc_server", 4), ("grpc_aio_server", 1)])
def test_calls_of_all_kinds_at_once_charge_nothing_wrongly(
    tmp_path: Path, observer: Observer, name: str, connections: int
) -> None:
    """Streams of one connection, or of several, are open side by side, and so are their answers."""
    with server(tmp_path, name) as (program, port), Following([program.pid], observer=observer) as following:
        following.wait_followed()
        asked: dict[int, int] = {}
        numbers = itertools.count(1)

        def client(channel: grpc.Channel) -> None:
            for _ in range(40):
                number = next(numbers)
                asked[number] = number % 5 + 1
                _ask(channel, number, asked[number], KINDS[number // 5 % len(KINDS)])

        with contextlib.ExitStack() as stack:
            channels = [
                stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]))
                for _ in range(connections)
            ]
            threads = [threading.Thread(target=client, args=(channels[n % connections],)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # And what comes alone.
            for number in range(10_001, 10_021):
                asked[number] = 2
                _ask(channels[0], number, 2, KINDS[number // 5 % len(KINDS)])
        following.wait_spans(len(asked))
        launched = end(program, following)

        # A call is known or it is not; what an executor does for it may be known in part.
        charged = _charges(following.servers)
        gathered = {n for n in asked if KINDS[n // 5 % len(KINDS)] == "Gather"} if name == "grpc_server" else set()
        assert {n: c for n, c in charged.items() if c not in (0, asked[n]) and n not in gathered} == {}
        assert {n: c for n, c in charged.items() if c > asked[n]} == {}
        assert owned(following) + sum(following.unattributed().values()) == following.launches() == launched
        assert {str(dict(s.attributes)["rpc.response.status_code"]) for s in following.servers} == {"OK"}
        if name == "grpc_server":
            assert sum(charged.values()) > 0
