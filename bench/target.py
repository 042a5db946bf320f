"""How is a measured program driven? One order a line (rounds.h), answered by nanoseconds and calls."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bench import ground
from bench.ground import UnavailableError


class Answer(NamedTuple):
    """How long an order took, and how many calls it made."""

    ns: int
    calls: int

    @property
    def ns_per_call(self) -> float:
        return self.ns / max(self.calls, 1)


class Target:
    """A measured program; it has mapped its driver when this returns."""

    def __init__(self, program: Sequence[str | Path], libraries: Sequence[Path]) -> None:
        self._process = subprocess.Popen(
            program,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
                "MOCKCUDA_STATE": "",
                "MOCKCUDA_TRUTH": "",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.calls = 0
        """Launches that the orders so far have made."""
        self._answer()

    @classmethod
    def on_driver(cls, driver: Path | None = None) -> Target:
        """Start the program on the driver API."""
        return cls([ground.driver_program()], [driver or ground.mock_driver()])

    @classmethod
    def on_runtime(cls, driver: Path | None = None) -> Target:
        """Start the program on NVIDIA's runtime."""
        return cls([ground.runtime_program()], [driver or ground.mock_driver(), ground.runtime_libraries()])

    def do(self, order: str) -> Answer:
        """Give an order and wait for the answer."""
        self.begin(order)
        return self.end()

    def begin(self, order: str) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def end(self) -> Answer:
        """Wait for the answer to an order."""
        answer = self._answer()
        self.calls += answer.calls
        return answer

    @contextmanager
    def launching(self, rate: int = 20_000) -> Iterator[None]:
        """Have it launch meanwhile, so often a second, without a pause."""
        is_over = threading.Event()

        def launch() -> None:
            while not is_over.is_set():
                self.do(f"pace {rate} 200")

        thread = threading.Thread(target=launch, name="bench-launching")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def is_probed(self, library: Path) -> bool:
        """Say whether somebody's probes are in the code of a library: it then differs from the file."""
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as maps:
            mappings = [line.split() for line in maps if line.rstrip().endswith(str(library))]
        with open(f"/proc/{self.pid}/mem", "rb") as memory, open(library, "rb") as file:
            for addresses, permissions, offset, *_ in mappings:
                if "x" not in permissions:
                    continue
                start, end = (int(address, 16) for address in addresses.split("-"))
                memory.seek(start)
                file.seek(int(offset, 16))
                loaded, stored = memory.read(end - start), file.read(end - start)
                if loaded[: len(stored)] != stored:
                    return True
        return False

    def close(self) -> int:
        """Let it end, and return its exit code; idempotent."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        code = self._process.wait(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _answer(self) -> Answer:
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if len(words) != 2:
            raise UnavailableError(f"the measured program ended with {self._process.wait()}")
        return Answer(int(words[0]), int(words[1]))
