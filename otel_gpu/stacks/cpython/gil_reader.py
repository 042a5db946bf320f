"""Who holds the GIL of one process now? Asked of a child that holds the process's memory, and nothing else."""

from __future__ import annotations

from ...sandbox.files import ProcessFile
from ...sandbox.parsers import Job, Parsers, WorkError
from .gil import GIL, Asked, gil_holders
from .process import PythonProcess


class GilReader:
    """Says who holds the GIL of one process. A child that holds the process's memory reads it, and nothing else."""

    def __init__(self, parsers: Parsers, pid: int) -> None:
        self._parsers, self._pid = parsers, pid
        self._job: Job[list[int]] | None = None
        self._python: PythonProcess | None = None

    def holders(self, python: PythonProcess) -> list[int]:
        """Return the TIDs of threads that hold it now; none where that cannot be told."""
        try:
            if self._job is None or self._python is not python:
                self.close()
                self._job = self._parsers.begin(gil_holders, [ProcessFile(self._pid, "mem")], python, limits=GIL)
                self._python = python
            return self._job.ask(Asked())
        except WorkError:
            self.close()
            return []

    def close(self) -> None:
        """End the child; idempotent."""
        job, self._job = self._job, None
        if job is not None:
            job.close()
