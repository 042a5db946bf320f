"""How is a big library's table compiled without the agent growing, or stopping for a second?

In a process of its own, which leaves the table in the cache and takes its memory with it.
The agent runs `main` there with the arguments DIRECTORY FILE.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from .. import isolated
from ..elf import ElfFile
from ..errors import OtelGpuError
from .rows import UnwindError

_TIME_LIMIT_S = 120
_NICE = 10
_REFUSED = 3
"""The exit status that says: this file has no table; the reason is on stderr."""


def compile_apart(path: str, directory: Path) -> None:
    """Compile a file into the cache at `directory`; UnwindError where that fails, with the reason."""
    # The file is passed open: in a container its path means something else, or it is already deleted.
    with open(path, "rb") as file:
        try:
            done = subprocess.run(
                isolated.command(__name__, str(directory), f"/proc/self/fd/{file.fileno()}"),
                pass_fds=(file.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_TIME_LIMIT_S,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                check=False,
            )
        except subprocess.TimeoutExpired as e:
            raise UnwindError(f"{path}: no unwinding table after {_TIME_LIMIT_S} s; its stacks are cut there") from e
        except OSError as e:
            raise UnwindError(f"{path}: cannot start {sys.executable} to compile its unwinding table: {e}") from e
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise UnwindError(f"{path}: no unwinding table: {reason or f'status {done.returncode}'}")


def main() -> int:
    """Compile the file that the arguments name."""
    from .cache import TableCache
    from .eh_frame import compile_table

    directory, path = sys.argv[1:3]
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (_TIME_LIMIT_S, _TIME_LIMIT_S))
    cache = TableCache(Path(directory))
    try:
        with ElfFile(path) as elf:
            cache.store(elf, compile_table(elf))
    except (OtelGpuError, OSError) as e:
        print(e, file=sys.stderr)  # noqa: T201 - this is what the parent reads
        return _REFUSED
    return 0
