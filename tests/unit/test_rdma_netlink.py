"""Are the kernel's messages of queue pairs read as they are, and whole ones only? The layout is rdma_netlink.h's."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.bpf.abi.rdma import QUEUE_PAIR, STATE_UNKNOWN
from otel_gpu.discovery.program_id import ProgramId
from otel_gpu.receivers.rdma import metrics as m
from otel_gpu.receivers.rdma.kernel_pairs import KernelPairs, levels_of_kernel
from otel_gpu.receivers.rdma.netlink import KernelPair, kernel_pairs, read_devices, read_pairs

_NLDEV = 5 << 10


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _message(command: int, *values: bytes) -> bytes:
    payload = b"".join(values)
    return struct.pack("<IHHII", 16 + len(payload), _NLDEV + command, 2, 1, 0) + payload


def _u32(kind: int, value: int) -> bytes:
    return _attribute(kind, value.to_bytes(4, "little"))


def _device(index: int, name: bytes) -> bytes:
    return _message(1, _u32(1, index), _attribute(2, name + b"\0"))


def _entry(qpn: int, *, pid: int | None = 7, remote: int | None = None, port: int = 1, state: int = 3) -> bytes:
    said = [_u32(3, port), _u32(21, qpn)]
    said += [] if remote is None else [_u32(22, remote)]
    said += [_attribute(26, b"\2"), _attribute(27, bytes([state]))]
    said += [_attribute(29, b"rpcrdma\0")] if pid is None else [_u32(28, pid)]
    return _attribute(20, b"".join(said))


def _pairs(*entries: bytes) -> bytes:
    return _message(10, _u32(1, 0), _attribute(0x8000 | 19, b"".join(entries)))


def test_pairs_of_all_devices_are_found_and_the_kernels_own_are_not() -> None:
    asked = []

    def dump(command: int, attributes: bytes) -> bytes:
        asked.append((command, attributes))
        if command == 1:
            return _device(0, b"mlx5_0") + _device(3, b"mlx5_1")
        if attributes == _u32(1, 0):
            return _pairs(_entry(17, remote=4017), _entry(1, pid=None)) + _pairs(_entry(18, state=0))
        return _pairs(_entry(17, pid=8, port=2, state=6))

    assert kernel_pairs(dump) == [
        KernelPair(7, "mlx5_0", 17, 4017, 1, 2, 3),
        KernelPair(7, "mlx5_0", 18, 0, 1, 2, 0),
        KernelPair(8, "mlx5_1", 17, 0, 2, 2, 6),
    ]
    assert asked == [(1, b""), (10, _u32(1, 0)), (10, _u32(1, 3))]


@given(st.binary(max_size=64), st.integers(0, 200))
def test_what_is_cut_or_forged_is_left_out(noise: bytes, at: int) -> None:
    whole = _pairs(_entry(17), _entry(18))

    for forged in (whole[:at], whole[:at] + noise + whole[at + len(noise) :], noise):
        assert all(isinstance(pair, KernelPair) for pair in read_pairs(forged, "mlx5_0"))
        assert all(isinstance(name, str) for name in read_devices(forged).values())
    assert [pair.qpn for pair in read_pairs(whole[: len(whole) - 1], "mlx5_0")] == []


def test_a_message_without_an_end_is_read_no_further() -> None:
    assert list(read_pairs(struct.pack("<IHHII", 0, _NLDEV + 10, 2, 1, 0) * 3, "mlx5_0")) == []


def _met(
    qpn: int, *, tgid: int = 7, exec_id: int = 1, state: int = STATE_UNKNOWN, device: bytes = b"mlx5_0"
) -> np.ndarray:
    pair = np.zeros(1, QUEUE_PAIR)
    pair["key"]["tgid"], pair["key"]["exec_id"], pair["key"]["qpn"] = tgid, exec_id, qpn
    pair["state"], pair["device"] = state, device
    return pair


def test_what_was_not_seen_of_a_pair_the_kernel_says_and_nothing_else() -> None:
    program = ProgramId(7, 1)
    known = KernelPairs(
        {7: program}, [KernelPair(7, "mlx5_0", qpn, 4000 + qpn, 1, 2, 3) for qpn in (17, 18, 19, 20)] + [
            KernelPair(9, "mlx5_0", 21, 0, 1, 2, 3)
        ],
    )  # fmt: skip
    live = np.concatenate([_met(17), _met(18, state=6), _met(17, exec_id=0)])

    completed, unmet = known.complete(live, _met(19))

    assert completed["state"].tolist() == [3, 6, STATE_UNKNOWN]
    assert completed["remote_qpn"].tolist() == [4017, 4018, 0]
    assert live["remote_qpn"].tolist() == [0, 0, 0]
    assert [(program, pair.qpn) for program, pair in unmet] == [(program, 20)]
    ((key, count),) = levels_of_kernel(unmet).items()
    assert (key[0], key[1], count) == (program, m.QP_STATE, 1)
    assert dict(key[2]) == {"rdma.device": "mlx5_0", "rdma.port": 1, "rdma.qp.state": "rts"}
