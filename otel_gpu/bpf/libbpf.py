"""Which C functions do we call? libbpf, bundled with the wheel or the system's, and the bpf system call."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from ctypes import c_char_p, c_int, c_long, c_size_t, c_uint32, c_void_p
from pathlib import Path

from ..errors import LoadError

_BUNDLED = Path(__file__).parent / "lib" / "libotelgpu_bpf.so"
_SYSTEM = "libbpf.so.1"

_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "bpf_object__open_file": (c_void_p, [c_char_p, c_void_p]),
    "bpf_object__load": (c_int, [c_void_p]),
    "bpf_object__btf_fd": (c_int, [c_void_p]),
    "bpf_object__close": (None, [c_void_p]),
    "bpf_object__next_program": (c_void_p, [c_void_p, c_void_p]),
    "bpf_object__next_map": (c_void_p, [c_void_p, c_void_p]),
    "bpf_object__find_map_by_name": (c_void_p, [c_void_p, c_char_p]),
    "bpf_program__name": (c_char_p, [c_void_p]),
    "bpf_program__fd": (c_int, [c_void_p]),
    "bpf_program__set_autoload": (c_int, [c_void_p, ctypes.c_bool]),
    "bpf_program__set_expected_attach_type": (c_int, [c_void_p, c_int]),
    "bpf_program__insns": (c_void_p, [c_void_p]),
    "bpf_program__insn_cnt": (c_size_t, [c_void_p]),
    "bpf_map__name": (c_char_p, [c_void_p]),
    "bpf_map__fd": (c_int, [c_void_p]),
    "bpf_map__type": (c_int, [c_void_p]),
    "bpf_map__key_size": (c_uint32, [c_void_p]),
    "bpf_map__value_size": (c_uint32, [c_void_p]),
    "bpf_map__max_entries": (c_uint32, [c_void_p]),
    "bpf_map__set_max_entries": (c_int, [c_void_p, c_uint32]),
    "bpf_map__map_flags": (c_uint32, [c_void_p]),
    "bpf_map__set_map_flags": (c_int, [c_void_p, c_uint32]),
    "bpf_map__initial_value": (c_void_p, [c_void_p, c_void_p]),
    "bpf_map__reuse_fd": (c_int, [c_void_p, c_int]),
    "libbpf_num_possible_cpus": (c_int, []),
    "libbpf_set_print": (c_void_p, [c_void_p]),
    "ring_buffer__new": (c_void_p, [c_int, c_void_p, c_void_p, c_void_p]),
    "ring_buffer__consume": (c_int, [c_void_p]),
    "ring_buffer__poll": (c_int, [c_void_p, c_int]),
    "ring_buffer__free": (None, [c_void_p]),
}

PRINT_FUNCTION = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
SAMPLE_FUNCTION = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)

SYS_BPF = {"x86_64": 321, "aarch64": 280}
SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = c_long


@functools.cache
def libbpf() -> ctypes.CDLL:
    """Return libbpf with its signatures set; LoadError where there is none."""
    for name in (str(_BUNDLED), _SYSTEM):
        try:
            library = ctypes.CDLL(name, use_errno=True)
        except OSError as e:
            reason = str(e)
            continue
        for function, (result, arguments) in _SIGNATURES.items():
            f = getattr(library, function)
            f.restype, f.argtypes = result, arguments
        # It writes to stderr by itself else.
        library.libbpf_set_print(None)
        return library
    raise LoadError(f"libbpf cannot be loaded: {reason}; reinstall otel-gpu, or install libbpf1")


def syscall(number: int, *arguments: object) -> int:
    """Make a system call; OSError when it fails."""
    result: int = _libc.syscall(c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def bpf(command: int, attributes: ctypes.Structure) -> int:
    """Make the bpf system call; OSError when it fails."""
    return syscall(SYS_BPF[machine()], c_int(command), ctypes.byref(attributes), c_uint32(ctypes.sizeof(attributes)))


def machine() -> str:
    """Return the name of the running architecture; LoadError for one without objects."""
    name = platform.machine()
    if name not in SYS_BPF:
        raise LoadError(f"otel-gpu has no BPF objects for {name}; it runs on {' and '.join(SYS_BPF)}")
    return name
