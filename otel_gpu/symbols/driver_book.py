"""How do this driver's records lead to names? What programs have shown of it, kept by the driver's build.

What one program proves holds for every other that has the same driver file: the layout of its records is fixed when it
is built. It is kept on disk, so that a program that was never seen from its start is named when any other one was.
What a program's own device code supports, holds for that program alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from ..elf import ElfFile
from ..printable import escaped
from ..process.files import FileId
from ..process.memory import Memory
from .cache import SymbolCache
from .device_names import device_names
from .driver_records import Path, Texts, confirmed, contradicts, follow, is_path, might_be_supported, supported, texts

_log = logging.getLogger(__name__)
_CACHE_KIND = "handles"
_MAX_PATHS = 64
_MAX_LOOKED_AT = 64
"""Handles of one program whose records are looked through for paths."""
_UNEXPLAINED = 3
"""Names that no believed path leads to, before others are looked for: handles may be of two kinds."""

_File = FileId | None


class DriverBook:
    """The paths that are believed, by driver file. Owned by one thread."""

    def __init__(self, cache: SymbolCache) -> None:
        self._cache = cache
        self._paths: dict[_File, frozenset[Path]] = {}

    def judge(self, driver: ElfFile, memory: Memory, told: Mapping[int, str]) -> frozenset[Path]:
        """Return the paths that are believed of a driver, after a program's known names have had their say."""
        before = self._of(driver)
        paths = before
        explained: set[str] = set()
        for handle, name in told.items():
            led = {path: follow(memory, handle, path) for path in paths}
            paths -= {path for path, text in led.items() if contradicts(text, name)}
            if name in led.values():
                explained.add(name)
        if len(set(told.values()) - explained) >= _UNEXPLAINED:
            handles = list(told)[-_MAX_LOOKED_AT:]
            paths |= confirmed({handle: texts(memory, handle) for handle in handles}, told)
        if paths != before:
            paths = frozenset(sorted(paths)[:_MAX_PATHS])
            _log.info(
                "names of kernels in %s: %s", escaped(driver.path), sorted(paths) or "no way leads to them any more"
            )
            self._paths[_file(driver)] = paths
            self._cache.write(driver, _CACHE_KIND, sorted(paths))
        return paths

    def _of(self, driver: ElfFile) -> frozenset[Path]:
        key = _file(driver)
        if key not in self._paths:
            kept = self._cache.read(driver, _CACHE_KIND, list[tuple[int, ...]]) or []
            self._paths[key] = frozenset(path for path in kept[:_MAX_PATHS] if is_path(path))
        return self._paths[key]


def supported_by_code(pid: int, memory: Memory, handles: Collection[int], told: Mapping[int, str]) -> frozenset[Path]:
    """Return the paths that a program's own device code speaks for, where too few names are known otherwise."""
    looked_at = [*told, *handles][:_MAX_LOOKED_AT]
    found: dict[int, Texts] = {handle: texts(memory, handle) for handle in looked_at}
    if not might_be_supported(found):
        return frozenset()
    paths = supported(found, device_names(pid) | set(told.values()))
    return frozenset(p for p in paths if all(found[h].get(p, name) == name for h, name in told.items() if h in found))


def _file(driver: ElfFile) -> _File:
    return driver.id
