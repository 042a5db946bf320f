"""Does a command that root types in somebody else's directory run anything that lies there?"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program
from tests.traps import Traps

SCRIPT = Path(sysconfig.get_path("scripts")) / "otel-gpu"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program whose biggest library is worth a process of its own, which compiles its unwinding table."""
    library = ground.libraries() / "libcublasLt.so.12"
    storm = [ground.part("programs") / "launch_storm", "--gate", "--threads", "2", "--launches", "3000"]
    with Program(storm, tmp_path_factory.mktemp("program"), {"LD_PRELOAD": str(library)}) as program:
        program.ready()
        yield program


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--pid", "{pid}", "--profiles", "--duration", "3", "--output", "file:../out"],
        ["record", "--pid", "{pid}", "--duration", "1", "--type", "cpu", "-o", "../cpu.html"],
        ["inspect", "{pid}"],
        ["doctor"],
        ["demo", "--duration", "1", "-o", "../demo.html"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_nothing_that_lies_there_runs(program: Program, arguments: list[str], tmp_path: Path) -> None:
    traps = Traps(tmp_path)
    # Nothing is compiled yet.
    environment = {**os.environ, "PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    done = subprocess.run(
        [SCRIPT, *(a.format(pid=program.pid) for a in arguments)],
        cwd=traps.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )

    assert traps.fired == ""
    # The program rests, so that nothing is recorded of it.
    assert done.returncode == 0 or "nothing that a profile of the type cpu shows happened" in done.stderr, done.stderr
