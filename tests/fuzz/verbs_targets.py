"""What says where RDMA is posted and polled, and whose queue pairs are whose: providers' files, and the kernel's messages."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from otel_gpu.errors import OtelGpuError
from otel_gpu.probes.nccl import plan_nccl
from otel_gpu.probes.nccl_streams import plan_streams
from otel_gpu.probes.sites import SiteRules
from otel_gpu.receivers.rdma.netlink import read_devices, read_pairs
from otel_gpu.receivers.rdma.verbs_tables import SET_OPS, index_of, operations
from otel_gpu.receivers.rdma.verbs_work import VerbsImage, VerbsRequest, look_for_verbs
from otel_gpu.sandbox.elf import ElfFile

from .elf_images import DYNSYM, STRTAB, Piece, image, offsets, symbol_table
from .elf_targets import _files, _Open
from .target import Target

_INDEX = 53
_MOST_SITES = 4096


def provider() -> bytes:
    """Return a provider that hands a table of its three functions to libibverbs."""
    pieces = [Piece(".text", bytes(64)), Piece(".data.rel.ro", bytes(8 * 97)), Piece(".rela.dyn", bytes(24 * 4))]
    text, data, *_ = offsets(pieces)
    functions = [(f"function_{n}", text + 16 * n, 16, 0x12) for n in (1, 2, 3)]
    dynsym, dynstr = symbol_table([(SET_OPS, 0, 0, 0x12), *functions])
    pieces += [Piece(".dynsym", dynsym, DYNSYM, ".dynstr"), Piece(".dynstr", dynstr, STRTAB)]
    slot, table = data, data + 8
    code = b"\x48\x8d\x35" + struct.pack("<i", table - text - 7)
    code += b"\xff\x15" + struct.pack("<i", slot - text - len(code) - 6)
    relocations = struct.pack("<QQQ", slot, 1 << 32 | 6, 0)
    for n in range(3):
        relocations += struct.pack("<QQQ", table + 8 * (_INDEX + n), 8, text + 16 * (n + 1))
    filled = {".text": code.ljust(16, b"\xc3") + b"\x55\xc3".ljust(16, b"\x90") * 3, ".rela.dyn": relocations}
    return image([Piece(p.name, filled.get(p.name, p.data), p.type, p.link) for p in pieces])


def messages() -> bytes:
    """Return what the kernel says of a device, and of a queue pair on it."""

    def attribute(kind: int, value: bytes) -> bytes:
        return struct.pack("<HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)

    def message(command: int, payload: bytes) -> bytes:
        return struct.pack("<IHHII", 16 + len(payload), (5 << 10) + command, 2, 1, 0) + payload

    said = b"".join(attribute(kind, n.to_bytes(4, "little")) for kind, n in ((3, 1), (21, 17), (22, 18), (28, 7)))
    entry = attribute(20, said + attribute(26, b"\2") + attribute(27, b"\3"))
    index = attribute(1, bytes(4))
    return message(1, index + attribute(2, b"mlx5_0\0")) + message(10, index + attribute(19, entry))


def _providers() -> Sequence[bytes]:
    return [provider(), *_files()]


def _tables(data: bytes) -> None:
    elf = ElfFile.of(_Open(data), "file")
    found = list(operations(elf, index_of(44, b"") or 0))
    assert len(found) <= 64
    for is_library in (False, True):
        mapped = VerbsImage(0, len(data), 0, b"file", is_library, not is_library)
        request = VerbsRequest(SiteRules.here("fast"), (mapped,), (), scan=False, version=44)
        # Without the three files that show a process's memory.
        (answer,) = look_for_verbs.function([None] * 3 + [_Open(data)], request)  # type: ignore[list-item]
        assert len(answer.sites) <= _MOST_SITES


def _plans(data: bytes) -> None:
    elf, rules = ElfFile.of(_Open(data), "file"), SiteRules.here("fast")
    assert len([*plan_nccl(elf, rules), *plan_streams(elf, rules)]) <= _MOST_SITES


def _netlink(data: bytes) -> None:
    assert len(read_devices(data)) <= 256
    assert len(list(read_pairs(data, "mlx5_0"))) <= len(data)


_READ = (OtelGpuError, struct.error, ValueError)
"""What whoever looks at a process's libraries catches."""

TARGETS = (
    Target("verbs_tables", _tables, _providers, _READ, 8192),
    Target("nccl_plan", _plans, _files, (OtelGpuError,), 8192),
    Target("rdma_netlink", _netlink, lambda: [messages()], (), 512),
)
