"""Does a program mind that probes come and go? `python -m bench.attachments [--times 1000] [--link multi|perf|copies]`.

Probes are placed on a driver and taken away again, as often as said, while one program launches on it without a pause. A
second one launches in between: every launch while the probes are there is counted, and none of the others; then the code
of both is byte for byte what the file says. Exit code 1 where that is not so.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from bench import faults, ground
from bench.target import Target
from otel_gpu.bpf.linker import LinkMode
from otel_gpu.bpf.placed import placed_programs
from otel_gpu.discovery.drivers import libraries_at
from otel_gpu.discovery.processes import ProcessTable
from otel_gpu.receivers.cuda.loading import CudaPrograms
from otel_gpu.receivers.cuda.receiver import CudaReceiver
from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.signals.cuda import KERNEL_LAUNCH_CALLS

_SEEN, _UNSEEN = 100, 10
_ROWS = 65_536


@dataclass(slots=True)
class Cycles:
    """What came of attaching and detaching."""

    attach_s: list[float] = field(default_factory=list)
    detach_s: list[float] = field(default_factory=list)
    launched: int = 0
    """By the second program, while probes were in place."""
    counted: int = 0
    meanwhile: int = 0
    """Launches of the first program."""
    unprobed: int = 0
    """How often code was what the file says though the probes were in place."""
    left_behind: int = 0
    """How often it was not after they were taken away, and no other agent was there."""
    descriptors: list[int] = field(default_factory=list)
    """Open after each cycle."""
    exit_codes: tuple[int, ...] = ()
    """Of both programs."""

    def faults(self) -> Iterator[str]:
        """Say what was wrong."""
        if self.counted != self.launched:
            yield f"{self.counted:,} of {self.launched:,} launches counted"
        if self.unprobed:
            yield f"no probes after {self.unprobed} attachments"
        if self.left_behind:
            yield f"code differed from the file after {self.left_behind} detachments"
        if self.descriptors[-1] > self.descriptors[0]:
            yield f"{self.descriptors[-1]} descriptors, {self.descriptors[0]} after the first cycle"
        if any(self.exit_codes):
            yield f"the programs ended with {self.exit_codes}"


def cycles(times: int, link: LinkMode = "auto") -> Cycles:
    """Attach and detach so often, within this process."""
    path = ground.mock_driver() / "libcuda.so.1"
    done = Cycles()
    with ExitStack() as stack:
        parsers = stack.enter_context(Parsers())
        busy, other = (stack.enter_context(Target.on_driver()) for _ in range(2))
        cuda = stack.enter_context(
            closing(
                CudaReceiver(ProcessTable(), parsers, CudaPrograms(map_entries=_ROWS, link=link, only=(other.pid,)))
            )
        )
        [(library, file)] = libraries_at(parsers, [str(path)])
        with busy.launching():
            for _ in range(times):
                began = time.perf_counter()
                cuda.attach(library, file)
                done.attach_s.append(time.perf_counter() - began)
                done.unprobed += not other.is_probed(path)
                done.launched += other.do(f"launch {_SEEN}").calls
                began = time.perf_counter()
                cuda.detach(library)
                done.detach_s.append(time.perf_counter() - began)
                other.do(f"launch {_UNSEEN}")
                done.left_behind += (other.is_probed(path) or busy.is_probed(path)) and not _others_probe(path)
                done.counted += sum(m.value for m in cuda.collect() if m.metric is KERNEL_LAUNCH_CALLS)
                done.descriptors.append(len(os.listdir("/proc/self/fd")))
        done.meanwhile = busy.calls
        done.exit_codes = busy.close(), other.close()
    return done


def _others_probe(path: Path) -> bool:
    """Say whether another agent of this host has probes in a library."""
    return any(placed.path == str(path) for placed in placed_programs())


def main() -> int:
    """Print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.attachments", description=__doc__)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--link", choices=get_args(LinkMode), default="auto")
    arguments = parser.parse_args()
    done = cycles(arguments.times, arguments.link)
    for what, seconds in (("attaching", done.attach_s), ("detaching", done.detach_s)):
        print(f"{what}: {statistics.median(seconds):.3f} s in the middle, {max(seconds):.3f} s at the most")
    print(
        f"{done.counted:,} of {done.launched:,} launches counted, {done.meanwhile:,} made by another program meanwhile"
    )
    print(f"{done.descriptors[0]} descriptors after the first cycle, {done.descriptors[-1]} after {len(done.attach_s)}")
    return faults.tell(done.faults())


if __name__ == "__main__":
    sys.exit(main())
