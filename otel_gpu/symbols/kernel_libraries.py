"""Which kernels does a file that a process maps have? Remembered, else kept on disk, else read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ..discovery import procfs
from ..elf import PT_LOAD, ElfFile
from ..errors import ElfError
from ..printable import escaped
from ..process.files import FileId
from .cache import SymbolCache
from .fatbin import FATBIN_SECTIONS
from .launches import Module
from .stubs import StubMap, read_stub_map

_log = logging.getLogger(__name__)
_CACHE_KIND = "stub-map"


class KernelLibraries:
    """The kernels of files. Owned by one thread."""

    def __init__(self, cache: SymbolCache, before_reading: Callable[[], None]) -> None:
        """`before_reading` is called when a file is read for the first time, which takes up to a second of CPU."""
        self._cache = cache
        self._before_reading = before_reading
        self._known: dict[FileId | None, StubMap] = {}

    def module(self, pid: int, mapping: procfs.FileMapping) -> Module | None:
        """Return a mapped file with the kernels it is known to have; None where it cannot be opened."""
        try:
            with ElfFile(_opener(pid, mapping)) as elf:
                bias = mapping.start - elf.code_vaddr(mapping.offset)
                loaded = [s for s in elf.segments if s.type == PT_LOAD]
                extent = bias + min(s.vaddr for s in loaded), bias + max(s.vaddr + s.mem_size for s in loaded)
                has_device_code = any(elf.section(name) is not None for name in FATBIN_SECTIONS)
                stubs = self._known.get(elf.id) if has_device_code else StubMap()
        except (ElfError, OSError):
            return None
        return Module(mapping.start, mapping.end, bias, os.path.basename(mapping.path), stubs, extent, mapping)

    def read(self, pid: int, module: Module) -> StubMap:
        """Return the kernels of a module's file; none where it cannot be opened any more."""
        assert module.file is not None
        try:
            with ElfFile(_opener(pid, module.file)) as elf:
                return self._stub_map(elf)
        except (ElfError, OSError) as e:
            _log.debug("kernels in %s: %s", escaped(module.name), e)
            return StubMap()

    def _stub_map(self, elf: ElfFile) -> StubMap:
        stubs = self._known.get(elf.id) or self._cache.read(elf, _CACHE_KIND, StubMap)
        if stubs is None:
            self._before_reading()
            stubs = read_stub_map(elf)
            self._cache.write(elf, _CACHE_KIND, stubs)
        self._known[elf.id] = stubs
        return stubs


def _opener(pid: int, mapping: procfs.FileMapping) -> str:
    opener = mapping.opener(pid)
    return opener if os.path.exists(opener) else f"/proc/{pid}/root{mapping.path}"
