"""What is an error called, in `error.type`? Codes that CUDA and HIP have names for, and of the others a few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from ...discovery.processes import Process
from ..hip.errors import NAMES as HIP
from .errors import NAMES as CUDA

NO_ERROR_CODE = 0
"""Stands in rows of errors for codes that neither CUDA nor HIP can have."""
OTHER = "_OTHER"
"""The semantic conventions' value for what has no name of its own."""
_MOST = 16
"""Codes without a name that one process may have a series of each: a library may return any number."""


class ErrorTypes:
    """The error codes of the observed processes. Owned by one thread."""

    def __init__(self) -> None:
        self._unknown: defaultdict[Process, set[int]] = defaultdict(set)

    def of_cuda(self, process: Process, code: int) -> str:
        """Return what a CUresult is called: the name of cuda.h, or its number."""
        return self._name(process, CUDA, code)

    def of_hip(self, process: Process, code: int) -> str:
        """Return what a hipError_t is called: the name of hip_runtime_api.h, or its number."""
        return self._name(process, HIP, code)

    def forget(self, processes: Collection[Process]) -> None:
        """Drop processes that have ended."""
        for process in processes:
            self._unknown.pop(process, None)

    def _name(self, process: Process, names: Mapping[int, str], code: int) -> str:
        if code == NO_ERROR_CODE:
            return OTHER
        if (name := names.get(code)) is not None:
            return name
        unknown = self._unknown[process]
        if code not in unknown and len(unknown) >= _MOST:
            return OTHER
        unknown.add(code)
        return str(code)
