"""vLLM, attached late with an empty cache: every launch gets its name, soon and for little."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import ground, naming
from tests.e2e.exported import read_metrics
from tests.e2e.processes import Agent, Program

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]
STARTS_S = 1200
"""vLLM is gigabytes of files, and compiles what it needs."""
NAMED_S = 120
"""10 s on two quiet cores."""
MAX_CPU_S, MAX_BYTES = 20.0, 120 << 20
"""What names take is measured by bench/names.py: here, on a host that others use, no more than that it has an end."""


@pytest.fixture(scope="module", params=["eager", "graphs"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    directory = tmp_path_factory.mktemp(f"vllm_{request.param}")
    command = [ground.vllm_python(), ground.PROGRAMS / "vllm_generate.py", directory, "--phases", "4"]
    with ExitStack() as compiling:
        if request.param == "graphs":
            command += ["--graphs", "--compiled", compiling.enter_context(ground.compiling_with_vllm())]
        with Program(command, directory, ground.vllm_environment()) as program:
            program.ready(STARTS_S)
            compiling.close()
            yield program


def _seconds(pid: int) -> float:
    """Return the CPU time of a process and of all its children, those that have ended and those that have not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [n for task in Path(f"/proc/{pid}/task").glob("*/children") for n in task.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(_seconds(int(child)) for child in children)


def _spent(pid: int) -> tuple[float, int]:
    """Return the CPU time of an agent with its children, and the most memory that it itself ever had."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return _seconds(pid), next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def test_a_cold_agent_names_every_launch(engine: Program, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    before = engine.truth_now()
    with Agent(["--pid", str(engine.pid), *naming.arguments(tmp_path)], tmp_path, cache) as agent:
        agent.wait_attached()
        engine.run_phase(NAMED_S)
        engine.ready(NAMED_S)
        agent.wait_for(r"names of kernels: \d+ wait")
        said = agent.wait_for(r"names of kernels: none waits any more", NAMED_S)
        seconds, most = _spent(agent.pid)
        after = engine.truth_now()
        agent.stop()

    exported, truth = read_metrics(tmp_path / "out").of(after.pid), after - before
    named = naming.of_launches(exported, truth)
    assert len(truth.launches) > 20
    assert named == naming.Naming(truth.launches.total(), truth.launches.total(), {})
    assert said.strip().endswith("0 are not known")
    assert seconds <= MAX_CPU_S
    assert most <= MAX_BYTES
