"""How do drivers' records lead to names? Written for the kernel, which reads them where a kernel without a name is launched."""

from __future__ import annotations

import threading
from collections import defaultdict

from ...bpf.abi.events import RECORD_STEPS, RECORD_WAY, WAYS_AT_ONCE
from ...bpf.maps import BpfMap
from ...bpf.records import struct_of
from ...sandbox.files import FileId
from .kernel_names.driver_records import Path

_MAX_FILES = 256
_RECORD_WAY = struct_of(RECORD_WAY)
_NONE = _RECORD_WAY.pack(*[0] * (RECORD_STEPS + 1))


class RecordWays:
    """The ways by a library's number. Safe to use from several threads."""

    def __init__(self, table: BpfMap) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._files: defaultdict[int, set[FileId]] = defaultdict(set)
        """The files of each number."""
        self._believed: dict[FileId, frozenset[Path]] = {}

    def place(self, number: int, file: FileId) -> None:
        """Note that a library gets a number: what holds for another one of this number does not hold for it."""
        with self._lock:
            self._files[number].add(file)
            self._write(number)

    def remove(self, file: FileId) -> None:
        """Note that a library is not probed any more."""
        with self._lock:
            self._believed.pop(file, None)
            for number, files in self._files.items():
                if file in files:
                    files.remove(file)
                    self._write(number)

    def believe(self, file: FileId, paths: frozenset[Path]) -> None:
        """Note how a driver's records lead to names; it may be placed later."""
        with self._lock:
            is_new = self._believed.pop(file, None) != paths
            self._believed[file] = paths
            while len(self._believed) > _MAX_FILES:
                del self._believed[next(iter(self._believed))]
            for number, files in self._files.items():
                if is_new and file in files:
                    self._write(number)

    def _write(self, number: int) -> None:
        said = {self._believed.get(file, frozenset()) for file in self._files[number]}
        paths = sorted(said.pop()) if len(said) == 1 else []
        # Where two do not agree there is no name, so all are followed or none.
        ways = [_packed(path) for path in paths] if len(paths) <= WAYS_AT_ONCE else []
        self._table.put(number.to_bytes(4, "little"), b"".join(ways).ljust(len(_NONE) * WAYS_AT_ONCE, b"\0"))


def _packed(path: Path) -> bytes:
    offsets = [*path, *[0] * RECORD_STEPS][:RECORD_STEPS]
    return _RECORD_WAY.pack(*offsets, len(path))
