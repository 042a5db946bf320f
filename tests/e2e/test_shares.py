"""Programs that take all they can get: each loses its own detail, keeps its totals, and costs no other anything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.service.agent import Agent
from tests.e2e import liar
from tests.e2e.inside import cuda_of
from tests.e2e.liar import LAUNCHES, LOST, Said
from tests.e2e.processes import DEADLINE_S

MANY = 200_000
BLOCKS = 4096

HOGS = {
    # what it does: (how often, the tables of which it has its share then)
    "handles": (MANY, {"rows"}),
    "names": (MANY, {"kernels"}),
    "renames": (60_000, {"rows"}),
    "events": (MANY, {"busy"}),
    "contexts": (MANY, {"contexts"}),
    "graphs": (MANY, {"rows", "graphs"}),
    "captures": (MANY, {"capturing"}),
    "pinned": (20_000, {"pinned"}),
}


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with liar.observer() as agent:
        yield agent


def wait_until_forgotten(agent: Agent, pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while liar.entries_of(agent, pid) or liar.keys_of(agent, pid):
        assert time.monotonic() < deadline, f"of {pid} there are left {liar.keys_of(agent, pid)}"
        agent.snapshot()


@pytest.mark.parametrize("what", HOGS)
def test_a_program_that_fills_a_table_costs_the_next_one_nothing(what: str, agent: Agent, tmp_path: Path) -> None:
    times, tables = HOGS[what]
    with liar.hostile(tmp_path, **{what: times}) as hog:
        hog.ready()
        did = hog.run_phase()
        of_hog = Said(agent, hog.pid)
        with liar.storm(tmp_path, "--threads", "2", "--launches", "1000", "--memory", "2", "--graphs", "3") as other:
            truth = other.finish()
            of_other = Said.of(agent, other.pid, truth.launches.total())

        assert of_hog.total("gpu.cuda.graph.launch.calls") == did["graph_launches"]
        assert set(of_hog.by(LOST, "bpf.map.name")) >= tables
        held = liar.entries_of(agent, hog.pid)
        full = {name: table.max_entries for name, table in liar.tables(agent).items()}
        assert all(held[name] <= full[name] / 2 for name in held)

        assert of_other.by(LAUNCHES, "cuda.kernel.name").total() == truth.launches.total() == 2000
        assert sorted(of_other.by(LAUNCHES, "cuda.kernel.name").values()) == sorted(truth.launches.values())
        assert of_other.total("gpu.cuda.graph.kernel.calls") == truth.graph_kernels
        assert of_other.total("gpu.cuda.memory.copies") == truth.copied.sum
        assert of_other.total("gpu.cuda.memory.allocations") == truth.allocated.total()
        assert of_other.total(LOST) == 0

        hog.go()
        assert hog.wait() == 0
    # Kernels that wait for a name are counted at the end at the latest.
    assert Said.of(agent, hog.pid, did["launches"]).total(LAUNCHES) == did["launches"]
    wait_until_forgotten(agent, hog.pid)


def test_totals_are_exact_beyond_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        liar.small_tables(monkeypatch, rows=64, overflow=64, live=64),
        liar.observer() as agent,
        liar.hostile(tmp_path, shapes=20_000, errors=3000, live=1000) as hog,
    ):
        hog.ready()
        did = hog.run_phase()
        of_hog = Said.of(agent, hog.pid, did["launches"])
        with liar.storm(tmp_path, "--threads", "2", "--launches", "1000", "--memory", "2", "--errors", "3") as other:
            truth = other.finish()
            of_other = Said.of(agent, other.pid, truth.launches.total())

    assert of_hog.total(LAUNCHES) == did["launches"] == 20_000
    assert of_hog.total("gpu.cuda.errors") == did["errors"] == 3000
    assert of_hog.total("gpu.cuda.memory.allocations") == did["allocated"]
    lost = of_hog.by(LOST, "otel_gpu.event")
    # All but those that found the first rows.
    assert lost["rows_full"] + lost["overflow_full"] == pytest.approx(20_000 + 3000 + 1000, abs=64)
    assert lost["overflow_full"] > 0
    # Its half of the table; a program of somebody else's on this host may have a row of it.
    assert 1000 - 32 <= lost["live_full"] < 1000 - 16
    # The other one has what the tables have left, and all of its totals.
    assert of_other.total(LAUNCHES) == truth.launches.total()
    assert of_other.total("gpu.cuda.memory.copies") == truth.copied.sum
    assert of_other.total("gpu.cuda.memory.allocations") == truth.allocated.total()
    assert of_other.total("gpu.cuda.memset.bytes") == truth.memset_bytes
    assert of_other.total("gpu.cuda.errors") == 6


def test_a_library_that_makes_up_values_makes_no_series_of_them(agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, errors=5000, devices=500, uuids=5000, copies=50, fills=50) as hog:
        hog.ready()
        did = hog.run_phase()
        hog.go()
        assert hog.wait() == 0
        said = Said.of(agent, hog.pid, did["launches"])

    codes = said.by("gpu.cuda.errors", "error.type")
    assert codes.total() == did["errors"]
    assert "_OTHER" in codes
    # Names of CUDA's are names; of the rest there are a few.
    assert sum(str(code).isdigit() for code in codes) <= 16
    assert len(said.names("cuda.device.index")) <= 64
    assert len(said.names("cuda.device.uuid")) <= 64
    assert said.total(LAUNCHES) == did["launches"]
    assert said.total("gpu.cuda.memory.copies") == said.total("gpu.cuda.memset.bytes") == 0
    assert said.by(LOST, "otel_gpu.event")["implausible"] >= 99
    wait_until_forgotten(agent, hog.pid)


@pytest.mark.parametrize("what", ["updates", "renames"])
def test_rows_that_can_grow_no_more_make_room(what: str, agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, **{what: 5000}) as changing:
        changing.ready()
        did = changing.run_phase()
        assert liar.entries_of(agent, changing.pid)["rows"] > 4000
        for _ in range(4):
            said = Said(agent, changing.pid)
        assert liar.entries_of(agent, changing.pid)["rows"] < 10
        assert said.total("gpu.cuda.graph.launch.calls") == did["graph_launches"]
        changing.go()
        assert changing.wait() == 0
    assert Said.of(agent, changing.pid, did["launches"]).total(LAUNCHES) == did["launches"]


def test_the_agent_says_how_full_each_table_is(agent: Agent, tmp_path: Path) -> None:
    with liar.hostile(tmp_path, live=1000) as program:
        program.ready()
        program.run_phase()
        points = {
            json.dumps(dict(p.attributes)): p.value
            for p in agent.snapshot()
            if p.name in ("otel_gpu.map.entries", "otel_gpu.map.capacity")
        }
        filled = cuda_of(agent).fill()
        program.go()
        assert program.wait() == 0
    assert points
    assert filled["live"][0] >= 1000
    assert all(0 <= entries <= capacity for entries, capacity in filled.values())
