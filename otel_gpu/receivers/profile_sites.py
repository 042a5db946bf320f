"""Where do the programs that take stacks sit? In each driver once, and in PyTorch where a process has it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from ..bpf.linker import ObjectLinker
from ..discovery import procfs
from ..discovery.libraries import FileId, Library, LibraryKind
from ..elf import ElfFile
from ..errors import ElfError, ProcessGoneError
from ..printable import escaped
from ..probes.attach import AttachedLibrary, plan
from ..probes.profile import hooks_for
from ..probes.sites import Policy
from ..probes.torch import is_torch, plan_torch, torch_hooks
from ..profiles import ProfileType

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
"""A program that starts maps hundreds of files; its mappings are not read anew for each."""
_MAX_PIDS = 4096


class ProfileSites:
    """The probes of all libraries that profiles need. Safe to use from several threads."""

    def __init__(
        self, linker: ObjectLinker, types: Sequence[ProfileType], policy: Policy, *, allow_single_step: bool
    ) -> None:
        self._linker = linker
        self._hooks = {kind: tuple(hooks_for(types, kind)) for kind in LibraryKind}
        self._torch_hooks = torch_hooks(types)
        self._policy: Policy = policy
        self._allow_single_step = allow_single_step
        self._lock = threading.Lock()
        self._libraries: dict[FileId, AttachedLibrary] = {}
        self._files: set[tuple[tuple[int, int], int]] = set()
        self._looked: dict[int, float] = {}

    def close(self) -> None:
        """Detach; idempotent."""
        with self._lock:
            for library in self._libraries.values():
                library.close()
            self._libraries.clear()

    def attach(self, library: Library, opener: str) -> None:
        """Place the programs in a CUDA driver or a HIP runtime, once."""
        with self._lock:
            hooks = self._hooks[library.kind]
            if library.id in self._libraries or not hooks:
                return
            try:
                with ElfFile(opener) as elf:
                    probes = plan(elf, hooks, policy=self._policy, allow_single_step=self._allow_single_step)
                self._libraries[library.id] = AttachedLibrary(library.path, probes, self._linker, opener)
            except (ElfError, OSError) as e:
                _log.warning("cannot profile %s: %s", escaped(library.path), e)

    def look_for_torch(self, pid: int) -> None:
        """Place the programs in the PyTorch of a process, if it has one."""
        now = time.monotonic()
        with self._lock:
            if now - self._looked.get(pid, 0.0) < _LOOK_EVERY_S:
                return
            self._looked[pid] = now
            if len(self._looked) > _MAX_PIDS:
                del self._looked[next(iter(self._looked))]
            try:
                mappings = procfs.executable_mappings(pid)
            except (ProcessGoneError, PermissionError):
                return
            for mapping in mappings:
                key = (mapping.device, mapping.inode)
                if is_torch(mapping.path, self._torch_hooks) and key not in self._files:
                    self._files.add(key)
                    self._attach_torch(mapping.path, mapping.opener(pid))

    def _attach_torch(self, path: str, opener: str) -> None:
        try:
            with ElfFile(opener) as elf:
                found = FileId.of(elf.stat)
                if found in self._libraries:
                    return
                probes = plan_torch(
                    elf, path, self._torch_hooks, policy=self._policy, allow_single_step=self._allow_single_step
                )
            library = self._libraries[found] = AttachedLibrary(path, probes, self._linker, opener)
        except (ElfError, OSError) as e:
            _log.warning("cannot profile %s: %s", escaped(path), e)
            return
        for symbol, reason in library.failures.items():
            _log.warning("%s: no probe on %s: %s", escaped(path), escaped(symbol), escaped(reason))
