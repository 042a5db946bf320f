"""What is counted for one call, made as told, of one function of a driver library?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from otel_gpu.bpf.abi.rows import Family
from otel_gpu.discovery.drivers import libraries_at
from otel_gpu.discovery.libraries import LibraryKind
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.receivers.cuda.rows import RowDelta
from otel_gpu.sandbox.parsers import Parsers
from tests.e2e import ground
from tests.e2e.abi_calls import Call
from tests.e2e.processes import Program


class Bench:
    """A program that calls a library, and the receiver's programs on the library."""

    def __init__(self, receiver: CudaReceiver, program: Program) -> None:
        self._receiver = receiver
        self._program = program

    def read(self) -> list[RowDelta]:
        # Gaps between the calls of a test, of any length, are none of its business.
        return [row for row in self._receiver._rows.read() if row.family != Family.IDLE]

    def make(self, call: Call, result: int = 0) -> list[RowDelta]:
        """Make a call, which must return `result`, and return the rows that it added to."""
        following = {**call.next, "next_result": result} if call.next else {}
        told = {"symbol": call.symbol, "arguments": call.arguments, "next": following}
        self._program.process.stdin.write(json.dumps(told) + "\n")
        self._program.process.stdin.flush()
        assert self._program.event("returned")["result"] == result
        return self.read()


@contextlib.contextmanager
def open_bench(path: Path, directory: Path) -> Iterator[Bench]:
    """Attach to a driver library and start the program that calls it."""
    program_line = [sys.executable, ground.PROGRAMS / "call_driver.py", path]
    with Program(program_line, directory) as program, Parsers() as parsers:
        program.ready()
        ((library, file),) = libraries_at(parsers, [str(path)])
        assert library.kind is LibraryKind.DRIVER
        receiver = CudaReceiver(ProcessTable(), parsers, CudaPrograms(map_entries=4096, only=(program.pid,)))
        try:
            assert receiver.attach(library, file) is not None
            _, failures = receiver.probes()
            assert failures == {}
            yield Bench(receiver, program)
        finally:
            receiver.close()
        program.process.stdin.close()
        program.wait()
