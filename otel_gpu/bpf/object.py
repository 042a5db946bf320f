"""What does a loaded BPF object offer? Its programs' descriptors and its maps, by name."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from ..errors import LoadError
from ..runtime.memory_limit import SMALLEST
from ..runtime.privileges import Capability, held, perform
from ..runtime.shortage import has_few_addresses, memory_advice
from ..sandbox.elf import ElfFile
from . import libbpf as lib
from .function_types import FunctionTypes, ObjectFunctions
from .maps import BpfMap

_log = logging.getLogger(__name__)
_OBJECTS = Path(__file__).parent / "objects"
_LOG_LIMIT = 1 << 16
"""So much of the end of a verifier's log is kept."""
_MESSAGE_BYTES = 1 << 12
_VA_LIST_BYTES = 32 if os.uname().machine == "aarch64" else 24
_WARNING = 0
"""libbpf's level: what went wrong, with the verifier's log."""
_HASHES = (1, 5, 9)
"""BPF_MAP_TYPE_HASH, PERCPU_HASH and LRU_HASH."""
_ARRAY, _MMAPABLE, _RINGBUF = 2, 1 << 10, 27
_FEW, _SMALLEST_RING = 4096, 1 << 18


class BpfObject:
    """A BPF object: configure it, load it, use its maps and programs, close it."""

    def __init__(self, name: str) -> None:
        """Open the object called `name` for this architecture; nothing is loaded yet."""
        path = _OBJECTS / f"{name}.{lib.machine()}.bpf.o"
        if not path.exists():
            raise LoadError(f"the BPF object {path.name} is missing; run `make bpf`, or reinstall otel-gpu")
        self.name = name
        self._path = path
        self._lib = lib.libbpf()
        self._functions: ObjectFunctions | None = None
        self._messages: list[str] = []
        self._print = lib.PRINT_FUNCTION(self._on_print)
        self._object: int | None = self._opened()
        self._settings: list[Callable[[], None]] = []
        """What was set before loading, to be set again where the object is opened anew."""
        self._shared: set[str] = set()
        self._maps: dict[str, BpfMap] = {}

    def __enter__(self) -> BpfObject:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Unload the object; idempotent."""
        if self._object:
            self._lib.bpf_object__close(self._object)
            self._object = None
        self._maps.clear()

    def set_variables(self, values: Mapping[str, int]) -> None:
        """Set global variables by name, before loading."""
        self._set(lambda: self._set_variables(values))

    def _set_variables(self, values: Mapping[str, int]) -> None:
        with ElfFile(self._path) as elf:
            variables = {s.name: s for s in elf.symbols(".symtab")}
            for name, value in values.items():
                variable = variables[name]
                section = elf.sections[variable.section].name
                size = ctypes.c_size_t()
                at = self._lib.bpf_map__initial_value(self._map_pointer(section), ctypes.byref(size))
                ctypes.memmove(at + variable.value, value.to_bytes(variable.size, "little"), variable.size)

    def has_map(self, name: str) -> bool:
        """Say whether its programs have a map of that name."""
        return bool(self._object and self._lib.bpf_object__find_map_by_name(self._object, name.encode()))

    def share_map(self, name: str, other: BpfMap) -> None:
        """Use another object's map in place of one of this object's, before loading."""
        self._shared.add(name)
        self._set(lambda: self._share_map(name, other))

    def _share_map(self, name: str, other: BpfMap) -> None:
        if self._lib.bpf_map__reuse_fd(self._map_pointer(name), other.fd):
            raise LoadError(f"the BPF object {self.name} cannot share the map {name}")

    def configure_map(self, name: str, *, max_entries: int | None = None, extra_flags: int = 0) -> None:
        """Set a map's size, or add flags, before loading."""
        self._set(lambda: self._configure_map(name, max_entries, extra_flags))

    def _configure_map(self, name: str, max_entries: int | None, extra_flags: int) -> None:
        pointer = self._map_pointer(name)
        if max_entries is not None:
            self._lib.bpf_map__set_max_entries(pointer, max_entries)
        if extra_flags:
            self._lib.bpf_map__set_map_flags(pointer, self._lib.bpf_map__map_flags(pointer) | extra_flags)

    def load(
        self, *, attach_type: Callable[[str], int | None], needed: Collection[str] | None = None, share: float = 1.0
    ) -> None:
        """Load maps, and programs: the `needed` ones, or all; `attach_type` gives a program's expected type by its name.

        Large maps get the `share` of their size, and less where there is no memory for that.
        """
        # What libbpf says is listened to only where it failed: it is thousands of lines, for each of which it would wait
        # until no other thread runs Python.
        is_last = False
        while True:
            for name, pointer in self._programs().items():
                if needed is not None and name not in needed:
                    self._lib.bpf_program__set_autoload(pointer, False)
                elif (kind := attach_type(name)) is not None:
                    self._lib.bpf_program__set_expected_attach_type(pointer, kind)
            if share < 1:
                self._shrink(share)
            with self._heard() if is_last else contextlib.nullcontext():
                failed = perform(self._lib.bpf_object__load, self._object)
            if not failed or is_last:
                break
            if failed == -errno.ENOMEM and share > SMALLEST:
                share /= 2
                _log.warning(
                    "no memory for the tables of %s: tried again with 1/%d of them", self.name, round(1 / share)
                )
            else:
                is_last = True
            self.close()
            self._object = self._opened()
            for setting in self._settings:
                setting()
        if failed:
            code = -failed
            raise LoadError(
                f"the kernel refused the BPF object {self.name}: {os.strerror(code)}; {_advice(code)}",
                verifier_log="".join(self._messages)[-_LOG_LIMIT:],
            )

    def programs(self) -> dict[str, int]:
        """Return the descriptors of the loaded programs by name."""
        return {n: fd for n, p in self._programs().items() if (fd := self._lib.bpf_program__fd(p)) >= 0}

    def instructions(self, program: str) -> bytes:
        """Return a loaded program's relocated instructions."""
        pointer = self._programs()[program]
        return ctypes.string_at(self._lib.bpf_program__insns(pointer), 8 * self._lib.bpf_program__insn_cnt(pointer))

    def types(self, program: str) -> FunctionTypes | None:
        """Return the types of a loaded program's functions, with which a copy of it is loaded; None where they are not known."""
        if self._functions is None:
            self._functions = ObjectFunctions(self._path)
        return self._functions.types(program, self.instructions(program), self._lib.bpf_object__btf_fd(self._object))

    def map(self, name: str) -> BpfMap:
        """Return a loaded map by name."""
        if name not in self._maps:
            p = self._map_pointer(name)
            self._maps[name] = BpfMap(
                name=name,
                fd=self._lib.bpf_map__fd(p),
                kind=self._lib.bpf_map__type(p),
                key_size=self._lib.bpf_map__key_size(p),
                value_size=self._lib.bpf_map__value_size(p),
                max_entries=self._lib.bpf_map__max_entries(p),
            )
        return self._maps[name]

    def _opened(self) -> int:
        path = os.fsencode(self._path)
        if not (opened := self._lib.bpf_object__open_file(path, None)):
            with self._heard():
                opened = self._lib.bpf_object__open_file(path, None)
        if not opened:
            advice = memory_advice() if has_few_addresses() else "reinstall otel-gpu"
            raise LoadError(f"the BPF object {self._path.name} cannot be opened: {self._reason()}; {advice}")
        return int(opened)

    def _set(self, setting: Callable[[], None]) -> None:
        setting()
        self._settings.append(setting)

    def _shrink(self, share: float) -> None:
        """Give large maps a share of their size: those that one entry more or less changes nothing of."""
        pointer = self._lib.bpf_object__next_map(self._object, None)
        while pointer:
            kind, entries = self._lib.bpf_map__type(pointer), self._lib.bpf_map__max_entries(pointer)
            is_own = self._lib.bpf_map__name(pointer).decode() not in self._shared
            is_table = kind in _HASHES or (kind == _ARRAY and self._lib.bpf_map__map_flags(pointer) & _MMAPABLE)
            if is_own and is_table and entries > _FEW:
                self._lib.bpf_map__set_max_entries(pointer, max(int(entries * share), _FEW))
            elif is_own and kind == _RINGBUF:
                # A power of two, as the shares are.
                self._lib.bpf_map__set_max_entries(pointer, max(int(entries * share), _SMALLEST_RING))
            pointer = self._lib.bpf_object__next_map(self._object, pointer)

    def _programs(self) -> dict[str, int]:
        found, p = {}, self._lib.bpf_object__next_program(self._object, None)
        while p:
            found[self._lib.bpf_program__name(p).decode()] = p
            p = self._lib.bpf_object__next_program(self._object, p)
        return found

    def _map_pointer(self, name: str) -> int:
        pointer = self._object and self._lib.bpf_object__find_map_by_name(self._object, name.encode())
        if not pointer:
            state = "has no map" if self._object else "is closed and no longer has the map"
            raise LoadError(f"the BPF object {self.name} {state} {name}; reinstall otel-gpu")
        return int(pointer)

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Route libbpf's messages here meanwhile; otherwise it is silent."""
        self._messages.clear()
        self._lib.libbpf_set_print(self._print)
        try:
            yield
        finally:
            self._lib.libbpf_set_print(None)

    def _on_print(self, level: int, text: bytes, arguments: int) -> int:
        if level > _WARNING:
            return 0
        # ctypes can only print what a callback raises. libbpf reports the lack of memory as well.
        with contextlib.suppress(MemoryError):
            # The verifier's log may be longer than any buffer that is fit for each message, and its reason stands at its end.
            buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)
            length = _print(buffer, text, arguments)
            if length >= len(buffer):
                buffer = ctypes.create_string_buffer(length + 1)
                _print(buffer, text, arguments)
            self._messages.append(buffer.value[-_LOG_LIMIT:].decode("utf-8", "replace"))
        return 0

    def _reason(self) -> str:
        return "".join(self._messages).strip().splitlines()[-1] if self._messages else "unknown reason"


def _print(buffer: ctypes.Array[ctypes.c_char], text: bytes, arguments: int) -> int:
    """Write what libbpf tells into the buffer, as far as there is room; return how many bytes it takes.

    `arguments` is the address of a `va_list`, which reading uses up: a copy is read. The psABIs give it 24 bytes (x86-64) and
    32 (AArch64).
    """
    copy = ctypes.create_string_buffer(ctypes.string_at(arguments, _VA_LIST_BYTES), _VA_LIST_BYTES)
    return int(ctypes.CDLL(None).vsnprintf(buffer, ctypes.c_size_t(len(buffer)), text, copy))


def _advice(code: int) -> str:
    rights = perform(held)
    may_load = Capability.CAP_SYS_ADMIN in rights or rights >= {Capability.CAP_BPF, Capability.CAP_PERFMON}
    if code in (errno.EPERM, errno.EACCES) and not may_load:
        return "run as root or with CAP_BPF and CAP_PERFMON"
    if code == errno.EPERM:
        return "raise the limit of locked memory (ulimit -l unlimited, LimitMEMLOCK=infinity), which Linux before 5.11 applies"
    # Where libbpf finds no room for the kernel's types it gives other reasons.
    if code == errno.ENOMEM or has_few_addresses():
        return memory_advice()
    return "run `otel-gpu doctor` to see what this kernel lacks"
