"""How do this driver's records lead to names? What programs have shown of it, kept by the driver's content.

What one program proves holds for every other that has the same driver: the layout of its records is fixed when it is
built. It is kept on disk, so that a program that was never seen from its start is named when any other one was.
What a program's own device code supports, holds for that program alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from ..printable import escaped
from ..process.batches import each
from ..process.files import FileId
from ..process.parsers import Parsers
from .cache import SymbolCache
from .driver_records import Path, is_path
from .launches import Module
from .stub_work import STUBS, content_names

_log = logging.getLogger(__name__)
_CACHE_KIND = "handles"
_MAX_PATHS = 64
_MAX_DRIVERS = 1_024


class DriverPaths:
    """The paths that are believed, by driver. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, cache: SymbolCache) -> None:
        self._parsers = parsers
        self._cache = cache
        self._lock = threading.RLock()
        self._names: dict[FileId, str] = {}
        """Hashes of drivers' content; empty for what cannot be read."""
        self._paths: dict[str, frozenset[Path]] = {}

    def paths(self, driver: Module) -> frozenset[Path]:
        """Return the paths that are believed of a driver."""
        name = self._name_of(driver)
        with self._lock:
            if name and name not in self._paths:
                kept = self._cache.read(name, _CACHE_KIND, list[tuple[int, ...]]) or []
                self._paths[name] = _bounded(kept)
            return self._paths.get(name, frozenset())

    def put(self, driver: Module, paths: Iterable[Path]) -> None:
        """Note the paths that a program has left of a driver's, or has added to them."""
        name, believed = self._name_of(driver), _bounded(paths)
        with self._lock:
            if not name or self._paths.get(name) == believed:
                return
            self._paths[name] = believed
        shown = sorted(believed) or "no way leads to them any more"
        # By its path: several drivers of one host have the same name.
        path = escaped(driver.name) if driver.file is None else driver.file.shown
        _log.info("names of kernels in %s: %s", path, shown)
        self._cache.write(name, _CACHE_KIND, sorted(believed))

    def _name_of(self, driver: Module) -> str:
        if driver.id is None or driver.file is None:
            return ""
        with self._lock:
            if driver.id in self._names:
                return self._names[driver.id]
        name = next((o.answer for o in each(self._parsers, content_names, [driver.file], None, STUBS) if o.answer), "")
        with self._lock:
            if len(self._names) >= _MAX_DRIVERS:
                self._names.clear()
                self._paths.clear()
            self._names[driver.id] = name
        return name


def _bounded(paths: Iterable[Path]) -> frozenset[Path]:
    return frozenset(sorted(filter(is_path, paths))[:_MAX_PATHS])
