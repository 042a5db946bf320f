"""Where do the programs that take stacks sit? In each driver once, and in PyTorch where a process has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from ...bpf.linker import ObjectLinker
from ...discovery.libraries import Library, LibraryKind
from ...probes.libraries import ProbedLibraries
from ...probes.planning import PlanRequest, hooks_of
from ...probes.sites import SiteRules
from ...probes.torch import torch_hooks
from ...sandbox.files import File
from ...sandbox.parsers import Parsers
from ...signals.profiles import ProfileType


class ProfileSites:
    """The probes of all libraries that profiles need. Safe to use from several threads."""

    def __init__(self, parsers: Parsers, linker: ObjectLinker, types: Sequence[ProfileType], rules: SiteRules) -> None:
        self._types = tuple(types)
        self._rules = rules
        self._torch = {hook.library for hook in torch_hooks(types)}
        self._libraries = ProbedLibraries(parsers, linker, self._request)

    def close(self) -> None:
        """Detach; idempotent."""
        self._libraries.close()

    def attach(self, library: Library, file: File) -> None:
        """Place the programs in a CUDA driver, a HIP runtime or one of PyTorch's libraries, once."""
        self._libraries.attach(library, file)

    def place_no_more(self) -> None:
        """Place nothing that is not in place yet, without a wait."""
        self._libraries.place_no_more()

    def detach(self, library: Library) -> None:
        """Take the programs out of a library that nobody uses any more."""
        self._libraries.detach(library)

    def retry(self) -> None:
        """Place programs for which there was no room, where there is some now."""
        self._libraries.retry()

    def _request(self, library: Library) -> PlanRequest | None:
        purpose: Literal["profiles", "torch"] = "torch" if library.kind is LibraryKind.TORCH else "profiles"
        name = os.path.basename(library.path)
        request = PlanRequest(purpose, self._rules, library.kind, types=self._types, name=name)
        is_wanted = name in self._torch if purpose == "torch" else bool(hooks_of(request))
        return request if is_wanted else None
