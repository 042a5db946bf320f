"""Ports of RDMA devices, as sysfs shows them: names of each driver, counters that begin anew, devices that vanish."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from otel_gpu.receivers.rdma.ports import PortReader
from otel_gpu.service import telemetry
from otel_gpu.signals.metrics import Resource

HOST = Resource((("host.name", "here"),))


def _write(root: Path, device: str, counters: dict[str, object], port: int = 1) -> None:
    for name, value in {
        "state": "4: ACTIVE",
        "rate": "100 Gb/sec (4X EDR)",
        "link_layer": "Ethernet",
        **counters,
    }.items():
        path = root / device / "ports" / str(port) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def _read(reader: PortReader) -> dict[tuple[str, ...], object]:
    found = {}
    for m in reader.collect():
        more = [str(v) for k, v in m.attributes if k not in ("rdma.device", "rdma.port", "rdma.link_layer")]
        found[(m.metric.name, *more)] = m.value
    return found


def test_what_a_port_counts_is_told_from_the_second_look_on(tmp_path: Path) -> None:
    reader = PortReader(HOST, str(tmp_path))
    _write(
        tmp_path, "rxe0", {"hw_counters/sent_pkts": 1000, "hw_counters/rcvd_seq_err": 5, "hw_counters/rcvd_rnr_err": 0}
    )
    assert _read(reader) == {("rdma.port.state",): 1, ("rdma.port.speed",): 12_500_000_000}
    _write(
        tmp_path, "rxe0", {"hw_counters/sent_pkts": 3000, "hw_counters/rcvd_seq_err": 15, "hw_counters/rcvd_rnr_err": 6}
    )

    found = _read(reader)

    assert found["rdma.port.packets", "transmit"] == 2000
    assert found["rdma.port.nacks", "sequence"] == 10
    assert found["rdma.port.nacks", "rnr"] == 6
    assert found["rdma.port.nack_ratio",] == 16 / 2000
    # Nothing was sent: there is no ratio.
    assert ("rdma.port.nack_ratio",) not in _read(reader)


def test_timeouts_are_retransmissions_and_no_nacks(tmp_path: Path) -> None:
    names = ("packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err", "local_ack_timeout_err", "roce_adp_retrans")
    reader = PortReader(HOST, str(tmp_path))
    counters = {"counters/port_xmit_packets": 0, "counters/port_xmit_data": 0, **{f"hw_counters/{n}": 0 for n in names}}
    _write(tmp_path, "mlx5_0", counters)
    reader.collect()
    _write(tmp_path, "mlx5_0", {**{f"hw_counters/{n}": 1 for n in names}, "counters/port_xmit_packets": 100,
                                "counters/port_xmit_data": 50})  # fmt: skip

    found = _read(reader)

    assert found["rdma.port.nack_ratio",] == 3 / 100
    assert found["rdma.port.retransmit_ratio",] == 5 / 100
    assert found["rdma.port.io", "transmit"] == 200


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [((1 << 32) - 10, 5, 15), (1000, 7, 7), (1 << 40, 3, 3), (5, 5, 0), (1 << 40, (1 << 40) + 9, 9)],
    ids=["goes round", "set up anew", "a long one set up anew", "rests", "a long one"],
)
def test_a_counter_that_falls_went_round_or_began_anew(tmp_path: Path, before: int, now: int, grown: int) -> None:
    reader = PortReader(HOST, str(tmp_path))
    _write(tmp_path, "mlx5_0", {"hw_counters/out_of_sequence": before})
    reader.collect()
    _write(tmp_path, "mlx5_0", {"hw_counters/out_of_sequence": now})

    assert _read(reader)["rdma.port.errors", "out_of_sequence"] == grown


def test_every_declared_metric_of_ports_is_emitted_with_each_of_its_attributes(tmp_path: Path) -> None:
    """`tests/e2e/test_everything_declared.py` leaves them to this test: stand-ins have no ports."""
    names = (
        "counters/port_xmit_data",
        "counters/port_xmit_packets",
        *(
            f"hw_counters/{name}"
            for name in (
                "packet_seq_err",
                "local_ack_timeout_err",
                "roce_adp_retrans",
                "np_cnp_sent",
                "out_of_sequence",
            )
        ),
    )
    reader = PortReader(HOST, str(tmp_path))
    _write(tmp_path, "mlx5_0", dict.fromkeys(names, 0))
    reader.collect()
    _write(tmp_path, "mlx5_0", dict.fromkeys(names, 1))

    found = {m.metric.name: {key for key, _ in m.attributes} for m in reader.collect()}

    declared = (spec for spec in telemetry.GROUPS["RDMA"] if spec.name.startswith("rdma.port."))
    assert found == {spec.name: set(spec.attributes) for spec in declared}


def test_devices_vanish_and_what_is_no_counter_is_left_out(tmp_path: Path) -> None:
    reader = PortReader(HOST, str(tmp_path))
    _write(tmp_path, "mlx5_0", {"hw_counters/out_of_sequence": "x" * 1000, "hw_counters/duplicate_request": -3})
    os.mkfifo(tmp_path / "mlx5_0/ports/1/hw_counters/packet_seq_err")
    (tmp_path / "mlx5_0/ports/1/hw_counters/np_cnp_sent").symlink_to("/etc/passwd")
    assert set(_read(reader)) == {("rdma.port.state",), ("rdma.port.speed",)}
    assert set(_read(reader)) == {("rdma.port.state",), ("rdma.port.speed",)}
    shutil.rmtree(tmp_path / "mlx5_0")
    assert reader.collect() == []
    assert PortReader(HOST, str(tmp_path / "nowhere")).collect() == []
    assert reader.gid("../..", 1, 0) == ""
