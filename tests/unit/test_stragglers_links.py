"""Is the link named that is slower than a communicator's others, and none that is not?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_gpu.cli import main
from otel_gpu.cli.stragglers import Latency, Link, find, read
from otel_gpu.cli.stragglers.links import slow_links


def _link(peer: str, *, comm: str = "c1", operation: str = "write") -> Link:
    return Link(comm, operation, "a", "mlx5_0", 1, peer)


def _slow(latencies: dict[Link, Latency]) -> list[str]:
    return [found.link.peer for found in slow_links(latencies, times=3.0, fewest=20)]


def test_a_link_is_slow_that_takes_several_times_as_long_as_the_others() -> None:
    alike = {_link(f"10.0.0.{n}"): Latency(100, 0.1 * n) for n in (1, 2, 2, 3)}

    assert _slow(alike) == []
    assert _slow({**alike, _link("10.0.0.9"): Latency(100, 0.7)}) == ["10.0.0.9"]
    # Reads are no writes, and another communicator's are not this one's.
    assert _slow({**alike, _link("10.0.0.9", operation="read"): Latency(100, 0.7)}) == []
    assert _slow({**alike, _link("10.0.0.9", comm="c2"): Latency(100, 0.7)}) == []


def test_of_few_requests_and_of_two_links_nothing_is_said() -> None:
    two = {_link("1"): Latency(100, 0.1), _link("2"): Latency(100, 9)}

    assert _slow(two) == []
    assert _slow({**two, _link("3"): Latency(19, 0.1)}) == []
    assert _slow({**two, _link("3"): Latency(20, 0.02)}) == ["2"]
    assert _slow({_link(n): Latency() for n in "123"}) == []


def _said(**values: object) -> list[dict[str, object]]:
    return [
        {"key": name.replace("_", "."), "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}
        for name, v in values.items()
    ]


def _point(peer: str, count: int, total_s: float, began: str = "1", **more: object) -> dict[str, object]:
    attributes = _said(rdma_device="mlx5_0", rdma_port=1, rdma_operation="write", network_peer_address=peer, **more)
    return {"attributes": attributes, "startTimeUnixNano": began, "count": str(count), "sum": total_s}


def _metrics(temporality: int, *points: dict[str, object]) -> dict[str, object]:
    metric = {
        "name": "rdma.client.operation.duration",
        "exponentialHistogram": {"aggregationTemporality": temporality, "dataPoints": list(points)},
    }
    resource = {"attributes": _said(host_name="a", process_pid=7)}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]}


def _arrival(rank: int) -> dict[str, object]:
    said = _said(nccl_comm_hash="c1", nccl_rank=rank, nccl_nranks=2, nccl_sequence=1, nccl_collective="AllReduce")
    span = {"name": "nccl collective", "attributes": said, "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize(("temporality", "times"), [(1, 2), (2, 1)], ids=["delta", "cumulative"])
def test_files_say_it_and_the_command_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], temporality: int, times: int
) -> None:
    of_comm = {"nccl_comm_hash": "c1"}
    points = [_point(f"10.0.0.{n}", 100, 0.1, **of_comm) for n in (1, 2, 3)]
    slow = _point("10.0.0.9", 100, 1.5, **of_comm)
    anew = _point("10.0.0.9", 100, 1.5, began="2", **of_comm)
    others = _point("10.0.0.8", 100, 9.0)
    requests = [
        _arrival(0),
        _arrival(1),
        *[_metrics(temporality, *points, slow, others)] * 2,
        _metrics(temporality, anew),
        _metrics(temporality, {**_point("10.0.0.1", 0, 0, **of_comm), "flags": 1}),  # its process has ended
    ]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(request) + "\n" for request in requests))

    data = read([tmp_path])

    assert {link.peer: latency.requests for link, latency in data.latencies.items()} == {
        "10.0.0.1": 100 * times,
        "10.0.0.2": 100 * times,
        "10.0.0.3": 100 * times,
        "10.0.0.9": 100 * times + 100,
    }
    ((found,),) = (one.slow_links for one in find(data))
    assert (found.link.peer, found.mean_s, found.others_s) == ("10.0.0.9", pytest.approx(0.015), pytest.approx(0.001))
    assert main(["stragglers", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "slow link: write from port 1 of mlx5_0 on a to 10.0.0.9 takes 15.0 ms in the mean of" in said
    assert "1.0 ms on the others" in said
