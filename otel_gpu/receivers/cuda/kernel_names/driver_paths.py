"""How do this driver's records lead to names? What programs have shown of it, kept by the driver's content.

What one program proves holds for every other that has the same driver: the layout of its records is fixed when it is
built. It is kept on disk, so that a program that was never seen from its start is named when any other one was.
What a program's own device code supports, holds for that program alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from ....sandbox.batches import each
from ....sandbox.files import File, FileId
from ....sandbox.parsers import Parsers
from ....text import escaped
from .cache import SymbolCache
from .driver_records import Path, is_path
from .launches import Module
from .stub_work import STUBS, content_names

_log = logging.getLogger(__name__)
_CACHE_KIND = "handles"
_FILES, _FILES_KIND = "0" * 40, "drivers"
_MAX_KEPT = 64
"""Files whose content is known in the next run; those that were read last."""
_MAX_PATHS = 64
_MAX_DRIVERS = 1_024


OnPaths = Callable[[FileId, frozenset[Path]], None]


class DriverPaths:
    """The paths that are believed, by driver. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, cache: SymbolCache, on_paths: OnPaths = lambda _driver, _paths: None) -> None:
        """`on_paths` is called with what is believed of a driver's file whenever that is another than it was."""
        self._on_paths = on_paths
        self._parsers = parsers
        self._cache = cache
        self._lock = threading.RLock()
        self._names: dict[FileId, str] = {}
        """Hashes of drivers' content; empty for what cannot be read."""
        self._kept_names: dict[FileId, str] | None = None
        """The same, as an earlier run found it: a file system can lie about what the file is, to its own programs."""
        self._paths: dict[str, frozenset[Path]] = {}

    def paths(self, driver: Module) -> frozenset[Path]:
        """Return the paths that are believed of a driver."""
        return self._believed(self._name_of(driver))

    @property
    def has_read_any(self) -> bool:
        """Whether any driver's file has been read."""
        return bool(self._names)

    def hash_once(self, driver: Module) -> bool:
        """Read a driver's file if that is still to be done, and say whether it was."""
        if driver.id is None or driver.id in self._names:
            return False
        self._name_of(driver)
        return driver.id in self._names

    def report(self, driver: FileId) -> bool:
        """Report what earlier programs have shown of a driver, without a look at its file; False where it must be read."""
        if not self._paths and not self._cache.names(_CACHE_KIND):
            return True
        with self._lock:
            name = self._names.get(driver) or self._kept().get(driver, "")
        if believed := self._believed(name):
            self._on_paths(driver, believed)
        return bool(name)

    def read(self, driver: FileId, file: File) -> None:
        """Report the same of one that must be read."""
        if driver not in self._names and (name := self._hash(file)):
            self._note(driver, name)
        self.report(driver)

    def _believed(self, name: str) -> frozenset[Path]:
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
            files = [file for file, its in (*self._names.items(), *self._kept().items()) if its == name]
        for file in files:
            self._on_paths(file, believed)
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
        name = self._hash(driver.file)
        self._note(driver.id, name)
        return name

    def _hash(self, file: File) -> str:
        return next((o.answer for o in each(self._parsers, content_names, [file], None, STUBS) if o.answer), "")

    def _note(self, driver: FileId, name: str) -> None:
        with self._lock:
            if len(self._names) >= _MAX_DRIVERS:
                self._names.clear()
                self._paths.clear()
            self._names[driver] = name
            kept = self._kept()
            if not name or kept.get(driver) == name:
                return
            kept[driver] = name
            while len(kept) > _MAX_KEPT:
                del kept[next(iter(kept))]
            rows = [(file.device, file.inode, file.changed_ns, its) for file, its in kept.items()]
        self._cache.write(_FILES, _FILES_KIND, rows)

    def _kept(self) -> dict[FileId, str]:
        if self._kept_names is None:
            rows = self._cache.read(_FILES, _FILES_KIND, list[tuple[int, int, int, str]]) or []
            self._kept_names = {
                FileId(device, inode, changed): name for device, inode, changed, name in rows[-_MAX_KEPT:]
            }
        return self._kept_names


def _bounded(paths: Iterable[Path]) -> frozenset[Path]:
    return frozenset(sorted(filter(is_path, paths))[:_MAX_PATHS])
