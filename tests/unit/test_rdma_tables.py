"""Functions of RDMA providers, found in the tables of their files: those that rdma-core 44 of Debian 12 is known to have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_gpu.receivers.rdma.verbs_tables import Operations, index_of, operations, version_of
from otel_gpu.sandbox.elf import ElfFile

_LIBRARIES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otel-gpu/verbs/lib"
_KNOWN = {
    "rxe": [Operations(0x2CA0, 0x4550, 0x3CC0)],
    "mlx5": [Operations(0x1E880, 0, 0), Operations(0x1DA50, 0x55D50, 0x552E0)],
    "efa": [Operations(0x60C0, 0x7A90, 0x6EF0)],
    "irdma": [Operations(0x5C80, 0x7B50, 0x75D0)],
    "bnxt_re": [Operations(0x3160, 0x50B0, 0x46F0)],
    "hns": [],
}
"""The one of hns is not at the call."""


@pytest.mark.parametrize("name", _KNOWN)
def test_tables_of_real_providers(name: str) -> None:
    path = _LIBRARIES / f"libibverbs/lib{name}-rdmav34.so"
    if not path.exists() or not (_LIBRARIES / "libibverbs.so.1.14.44.0").exists():
        pytest.skip("no providers of rdma-core 44, as Debian 12 has them: run tests/ground/verbs.sh")
    with ElfFile(path) as elf:
        assert list(operations(elf, index_of(44, b""))) == _KNOWN[name]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "path", "index"),
    [
        (44, b"", 53),
        (34, b"", 52),
        (None, b"/usr/lib/libmlx5.so.1.24.61.0", 55),
        (None, b"/lib/librxe-rdmav34.so", 53),
        (62, b"/lib/librxe-rdmav59.so", 56),
        # Two orders go by this name.
        (None, b"/lib/librxe-rdmav59.so", None),
        (23, b"", None),
        (None, b"/lib/libfoo.so", None),
    ],
)
def test_the_order_of_a_table_follows_from_the_version(version: int | None, path: bytes, index: int | None) -> None:
    assert index_of(version, path) == index


def test_a_full_name_says_the_version() -> None:
    assert version_of(b"/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0") == 44
    assert version_of(b"/usr/lib/libibverbs.so.1") is None
