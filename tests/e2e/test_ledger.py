"""Is what is allocated now what a model says? Any sequence of calls, from several threads, from the start and late."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_gpu.bpf.abi.memory import LIVE_KEY
from otel_gpu.bpf.abi.programs import Loss
from otel_gpu.bpf.object import BpfObject
from otel_gpu.config.model import Config
from otel_gpu.config.settings import Discovery
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.service.agent import Agent
from tests.e2e import ground
from tests.e2e.inside import cuda_of
from tests.e2e.processes import DEADLINE_S, Program

SLICE = 2 << 20
HUGE = 1 << 60
ROOM = 64
KINDS = ("device", "managed", "host", "async", "registered")

Call = tuple[object, ...]


@dataclass(frozen=True)
class Held:
    """One allocation of the model."""

    kind: str
    size: int
    context: int
    pointer: int


@dataclass
class Physical:
    """One cuMemCreate of the model: it lives while it is referred to or mapped."""

    slices: int
    handles: list[int]
    mapped: list[int] = field(default_factory=list)


class Model:
    """What should be allocated, by (type, device)."""

    def __init__(self) -> None:
        self.devices = [0, 1]
        """Of each context."""
        self.alive = {0, 1}
        self.references = [1, 1]
        """To the primary contexts, which are 0 and 1."""
        self.current = [0, 0, 0]
        self.held: list[Held] = []
        self.physical: list[Physical] = []

    def usage(self) -> Counter[tuple[str, int | None]]:
        found: Counter[tuple[str, int | None]] = Counter()
        for held in self.held:
            found[held.kind, self.devices[held.context]] += held.size
        for physical in self.physical:
            found["virtual", None] += physical.slices * SLICE
        return +found

    def end(self, context: int) -> None:
        self.held = [h for h in self.held if h.context != context]


class Script:
    """A program that does what it is told, and the model of it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.model = Model()

    def do(self, *call: object) -> tuple[int, int | None]:
        self.program.process.stdin.write(json.dumps([call]) + "\n")
        self.program.process.stdin.flush()
        return tuple(self.program.event("phase")["did"][0])

    def step(self, choice: str, thread: int, number: int, size: int) -> None:
        """Do one thing and tell the model; `number` chooses among what there is."""
        model = self.model
        match choice:
            case "allocate":
                kind = KINDS[number % len(KINDS)]
                code, pointer = self.do(thread, "allocate", kind, size)
                assert code == 0
                model.held.append(Held(kind, size, model.current[thread], pointer))
            case "fail":
                assert self.do(thread, "allocate", ("device", "managed")[number % 2], HUGE)[0] == 2
                assert self.do(thread, "bogus", "")[0] != 0
            case "free" if model.held:
                held = model.held.pop(number % len(model.held))
                how = "async_by_free" if held.kind == "async" and number % 2 else held.kind
                assert self.do(thread, "free", how, held.pointer)[0] == 0
                if number % 5 == 0:
                    assert self.do(thread, "free", how, held.pointer)[0] != 0
            case "create":
                slices = number % 3 + 1
                _, handle = self.do(thread, "create", slices)
                model.physical.append(Physical(slices, [handle]))
            case "place" | "unmap" | "retain" | "release" if model.physical:
                self.virtual(choice, thread, model.physical[number % len(model.physical)])
            case "enter":
                model.current[thread] = sorted(model.alive)[number % len(model.alive)]
                self.do(thread, "enter", model.current[thread])
            case "new_context":
                _, context = self.do(thread, "new_context", number % 2)
                model.devices.append(number % 2)
                model.alive.add(context)
                model.current[thread] = context
            case "end_context" if own := sorted(model.alive - {0, 1}):
                context = own[number % len(own)]
                self.leave(context)
                self.do(thread, "end_context", context)
                model.alive.discard(context)
                model.end(context)
            case "reset":
                # Of the device's contexts only the primary one ends.
                self.leave(1)
                self.do(thread, "reset", 1)
                model.end(1)

            case "retain_primary":
                device = number % 2
                assert self.do(thread, "retain_primary", device)[0] == 0
                model.references[device] += 1
                model.alive.add(device)
                assert self.do(thread, "retain_primary", 7)[0] != 0
            case "release_primary" if model.references[number % 2] == 0:
                assert self.do(thread, "release_primary", number % 2)[0] != 0
            case "release_primary" if number % 2 == 1 or model.references[0] > 1:
                # The first device's is where threads go whose context ends.
                self.release_primary(thread, number % 2)

    def release_primary(self, thread: int, device: int) -> None:
        self.model.references[device] -= 1
        if self.model.references[device] == 0:
            self.leave(device)
            self.model.alive.discard(device)
            self.model.end(device)
        assert self.do(thread, "release_primary", device)[0] == 0

    def leave(self, context: int) -> None:
        for thread, current in enumerate(self.model.current):
            if current == context:
                self.do(thread, "enter", 0)
                self.model.current[thread] = 0

    def virtual(self, choice: str, thread: int, physical: Physical) -> None:
        if choice == "place" and physical.handles:
            _, pointer = self.do(thread, "place", physical.handles[0], physical.slices)
            physical.mapped.append(pointer)
        elif choice == "unmap" and physical.mapped:
            self.do(thread, "unmap", physical.mapped.pop(), physical.slices)
        elif choice == "retain" and physical.mapped:
            physical.handles.append(self.do(thread, "retain", physical.mapped[-1])[1])
        elif choice == "release" and physical.handles:
            self.do(thread, "release", physical.handles.pop())
        if not physical.handles and not physical.mapped:
            self.model.physical.remove(physical)


CHOICES = (
    *("allocate",) * 6,
    *("free",) * 4,
    *("enter",) * 2,
    *("fail", "create", "create", "place", "place", "unmap", "retain", "release", "release"),
    *("new_context", "end_context", "reset", "retain_primary", "release_primary", "release_primary"),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(CHOICES), st.integers(0, 2), st.integers(0, 1000), st.sampled_from((1, 511, 4096, 1 << 20))
    ),
    min_size=1,
    max_size=60,
)
PROPERTY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def observer(*pids: int) -> Agent:
    driver = str(ground.part("mock") / "libcuda.so.1")
    return Agent(
        Config(
            discovery=Discovery(pids),
            receivers={"cuda": CudaSettings(libraries=(driver,))},
            processors={},
            exporters={},
        )
    )


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with observer() as agent:
        yield agent


def start(directory: Path, *arguments: str, **environment: str) -> Program:
    command = [sys.executable, "-S", ground.PROGRAMS / "memory_script.py", *arguments]
    return Program(command, directory, {"MOCKCUDA_DEVICES": "2", **environment})


def by_type(usage: Counter[tuple[str, int | None]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (kind, _), size in usage.items():
        found[kind] += size
    return found


def driver_usage(program: Program) -> Counter[str]:
    """Return what the driver says is allocated, but for virtual memory, of which it counts what is mapped."""
    live = program.truth_now().live
    return +Counter({kind: live[kind] for kind in KINDS})


def usage(agent: Agent, pid: int) -> Counter[tuple[str, int | None]]:
    """Return what the agent says is allocated; virtual memory's device is what the program's properties say."""
    found: Counter[tuple[str, int | None]] = Counter()
    for point in agent.snapshot():
        if point.name == "gpu.cuda.memory.usage" and dict(point.resource.attributes)["process.pid"] == pid:
            known = dict(point.attributes)
            kind = known["cuda.memory.type"]
            found[kind, None if kind == "virtual" else known.get("cuda.device.index")] += point.value
    assert all(size >= 0 for size in found.values())
    return +found


@PROPERTY
@given(first=steps, then=steps)
def test_usage_is_what_the_model_says_at_every_checkpoint(
    agent: Agent, tmp_path: Path, first: list[Call], then: list[Call]
) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        for part in (first, then):
            for step in part:
                script.step(*step)
            found = usage(agent, program.pid)
            assert found == script.model.usage()
            assert Counter({k: n for k, n in by_type(found).items() if k != "virtual"}) == driver_usage(program)


@settings(PROPERTY, max_examples=5)
@given(before=steps, after=steps)
def test_a_late_agent_knows_what_it_saw_and_counts_the_other_frees_apart(
    tmp_path: Path, before: list[Call], after: list[Call]
) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        for step in before:
            script.step(*step)
        unseen = {h.pointer for h in script.model.held}
        old_handles = list(script.model.physical)
        with observer() as agent:
            for choice, *rest in after:
                # What becomes of virtual memory and of references that were there before are other tests' questions.
                if choice not in ("create", "place", "unmap", "retain", "release", "release_primary"):
                    script.step(choice, *rest)
            script.model.held = [h for h in script.model.held if h.pointer not in unseen]
            script.model.physical = [p for p in script.model.physical if p not in old_handles]
            assert by_type(usage(agent, program.pid)) == by_type(script.model.usage())


def test_a_primary_context_takes_its_memory_with_its_last_reference(agent: Agent, tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        for part in (
            [("allocate", 0, 0, 7), ("enter", 0, 1, 0), *(("allocate", 0, n, 4096) for n in range(len(KINDS)))],
            [("retain_primary", 1, 1, 0), ("release_primary", 2, 1, 0)],
            [("release_primary", 1, 1, 0)],
            [("release_primary", 1, 1, 0), ("retain_primary", 1, 1, 0), ("enter", 0, 1, 0), ("allocate", 0, 0, 5)],
            [("release_primary", 0, 1, 0)],
        ):
            for step in part:
                script.step(*step)
            found = usage(agent, program.pid)
            assert found == script.model.usage()
            assert by_type(found) == driver_usage(program)
        assert found == {("device", 0): 7}


def test_a_late_agent_does_not_take_a_reference_for_the_last(tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        with observer(program.pid) as agent:
            # Another one was taken before the agent came.
            for step in (("retain_primary", 0, 1, 0), ("enter", 0, 1, 0), ("allocate", 0, 0, 4096)):
                script.step(*step)
            script.step("release_primary", 0, 1, 0)
            assert usage(agent, program.pid) == script.model.usage() == {("device", 1): 4096}
            assert driver_usage(program) == {"device": 4096}


def test_a_program_is_no_older_than_its_probes_for_those_of_another_driver(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(ground.part("mock") / "libcuda.so.1", other)
    with observer() as agent, start(tmp_path, "later") as program:
        program.event("waiting")
        libraries = cuda_of(agent)._libraries
        before, deadline = libraries.probes()[0], time.monotonic() + DEADLINE_S
        with start(tmp_path, LD_LIBRARY_PATH=f"{other}:{ground.library_path()}") as of_other:
            of_other.ready()
            while libraries.probes()[0] <= before:
                assert time.monotonic() < deadline, "the other driver has no probes"
                time.sleep(0.05)
            program.go()
            program.ready()
            script = Script(program)
            for step in (("enter", 0, 1, 0), ("allocate", 0, 0, 4096)):
                script.step(*step)
            assert usage(agent, program.pid) == {("device", 1): 4096}
            script.step("release_primary", 0, 1, 0)
            assert usage(agent, program.pid) == driver_usage(program) == {}


def test_frees_of_memory_from_before_are_counted(tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        for n in range(5):
            script.step("allocate", 0, n, 4096)
        with observer() as agent:
            for _ in range(5):
                script.step("free", 1, 1, 0)
            points = [p for p in agent.snapshot() if p.name == "gpu.cuda.memory.unmatched.frees"]
    assert {dict(p.attributes)["otel_gpu.reason"]: p.value for p in points} == {"allocated_before": 5}


def test_what_finds_no_place_is_counted_and_not_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = BpfObject.load
    share, beyond = ROOM // 2, 36

    def load_small(self: BpfObject, **options: Any) -> None:
        self.configure_map("live", max_entries=ROOM)
        load(self, **options)

    monkeypatch.setattr(BpfObject, "load", load_small)
    with start(tmp_path) as program:
        program.ready()
        with observer(program.pid) as agent:
            script = Script(program)
            pointers = [script.do(0, "allocate", "device", 4096)[1] for _ in range(share + beyond)]
            assert usage(agent, program.pid).total() == share * 4096
            assert cuda_of(agent).losses()[Loss.LIVE_FULL] == beyond
            for pointer in pointers:
                assert script.do(0, "free", "device", pointer)[0] == 0
            assert not usage(agent, program.pid)
            points = {p.name: p for p in agent.snapshot()}
    assert points["gpu.cuda.memory.allocations"].value == (share + beyond) * 4096
    assert points["gpu.cuda.memory.free.bytes"].value == share * 4096
    frees, lost = points["gpu.cuda.memory.unmatched.frees"], points["otel_gpu.process.events.lost"]
    assert (dict(frees.attributes)["otel_gpu.reason"], frees.value) == ("untracked", beyond)
    assert (dict(lost.attributes), lost.value) == ({"otel_gpu.event": "live_full", "bpf.map.name": "live"}, beyond)
    assert dict(lost.resource.attributes)["process.pid"] == program.pid


def test_a_context_ends_with_very_many_allocations(agent: Agent, tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        for step in (("allocate", 0, 0, 7), ("new_context", 0, 1, 0), *(("allocate", 0, n, 4096) for n in range(600))):
            script.step(*step)
        assert usage(agent, program.pid) == script.model.usage()
        script.step("end_context", 0, 0, 0)
        assert usage(agent, program.pid) == script.model.usage() == {("device", 0): 7}


def test_keys_that_are_gone_do_not_keep_the_others(agent: Agent) -> None:
    live = cuda_of(agent)._object.map("live")
    keys = np.zeros(7, LIVE_KEY)
    keys["address"] = range(7)
    for at in (1, 2, 5):
        live.put(keys[at].tobytes(), bytes(live.value_size))

    assert live.delete_many(keys) == 3
    assert live.delete_many(keys) == live.delete_many(keys[:0]) == 0


def test_what_a_process_held_ends_with_it(agent: Agent, tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        for n in range(5):
            script.step("allocate", n % 3, n, 1 << 20)
        assert usage(agent, program.pid).total() == 5 << 20
        program.process.stdin.close()
        program.wait()
    live = cuda_of(agent)._object.map("live")
    deadline = time.monotonic() + 10
    while any(int.from_bytes(key[:4], "little") == program.pid for key in live.each_key()):
        assert time.monotonic() < deadline, "the ledger still holds what an ended process had"
        agent.snapshot()
        time.sleep(0.1)
