"""What does a running agent hold? Descriptors, threads, children, memory, and the entries of its BPF maps."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import Counter
from ctypes import c_uint32, c_uint64
from dataclasses import dataclass

import numpy as np

from otel_gpu.bpf import libbpf
from otel_gpu.bpf.maps import BpfMap

_MAP_FD_BY_ID, _INFO_BY_FD, _LINK_FD_BY_ID = 14, 15, 30
_HASHES = (1, 5)
"""BPF_MAP_TYPE_HASH and PERCPU_HASH. Those that put what is new in the place of what is old (LRU) are meant to fill up."""


class _ById(ctypes.Structure):
    _fields_ = (("id", c_uint32), ("next", c_uint32), ("flags", c_uint32))


class _InfoRequest(ctypes.Structure):
    _fields_ = (("fd", c_uint32), ("length", c_uint32), ("info", c_uint64))


class _MapInfo(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("id", c_uint32),
        ("key_size", c_uint32),
        ("value_size", c_uint32),
        ("max_entries", c_uint32),
        ("flags", c_uint32),
        ("name", ctypes.c_char * 16),
    )


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a process holds at one time."""

    descriptors: int
    threads: int
    children: int
    rss_bytes: int
    entries: Counter[str]
    """Of its BPF hash tables that could overflow, by name; those of one name together."""


def holdings(pid: int) -> Holdings:
    """Return what a process holds now."""
    tasks = os.listdir(f"/proc/{pid}/task")
    children = 0
    for task in tasks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as listed:
            children += len(listed.read().split())
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        rss_bytes = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Holdings(len(os.listdir(f"/proc/{pid}/fd")), len(tasks), children, rss_bytes, _map_entries(pid))


def links(pid: int) -> set[int]:
    """Return the numbers of the BPF links that a process holds: its probes, as the kernel has them."""
    return _numbers(pid, "link_id:")


def is_link(number: int) -> bool:
    """Say whether the kernel still has a link."""
    try:
        os.close(libbpf.bpf(_LINK_FD_BY_ID, _ById(number)))
    except FileNotFoundError:
        return False
    return True


def _map_entries(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in sorted(_numbers(pid, "map_id:")):
        with contextlib.suppress(FileNotFoundError):  # unloaded meanwhile
            fd = libbpf.bpf(_MAP_FD_BY_ID, _ById(number))
            try:
                info = _MapInfo()
                libbpf.bpf(_INFO_BY_FD, _InfoRequest(fd, ctypes.sizeof(info), ctypes.addressof(info)))
                if info.type in _HASHES:
                    found[info.name.decode("ascii", "replace")] += _count(fd, info)
            finally:
                os.close(fd)
    return found


def _numbers(pid: int, key: str) -> set[int]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as info:
            found |= {int(line.split()[1]) for line in info if line.startswith(key)}
    return found


def _count(fd: int, info: _MapInfo) -> int:
    table = BpfMap("", fd, info.type, info.key_size, info.value_size, info.max_entries)
    key, value = np.dtype((np.void, info.key_size)), np.dtype((np.void, info.value_size))
    return sum(len(keys) for keys, _ in table.read_parts(key, value))
