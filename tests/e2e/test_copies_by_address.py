"""From where to where does a copy go that does not say so? By where memory lies, as the driver counts it."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.bpf.object import BpfObject
from otel_gpu.service.agent import Agent
from tests.e2e import ground
from tests.e2e.processes import Program
from tests.e2e.test_ledger import Script, observer, start, usage
from tests.waiting import until

HOWS = ("blocking", "async", "batch", "2d", "3d")
KINDS = ("device", "managed", "async", "host", "registered")
UNKNOWN = "MemcpyDefault"
ODD = 10_007
"""Bytes of an allocation that ends in the middle of a page."""

Copies = Counter[tuple[str, str]]

_BY_THE_RUNTIME = """
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_void_p
ctypes.CDLL("libcuda.so.1")
print('{"event": "waiting"}', flush=True)
sys.stdin.readline()
rt = ctypes.CDLL(sys.argv[1])
on = [c_void_p(), c_void_p()]
for device, pointer in enumerate(on):
    assert rt.cudaSetDevice(c_int(device)) == 0
    assert rt.cudaMalloc(byref(pointer), c_size_t(4096)) == 0
for to, from_, size in ((0, 1, 1), (1, 0, 2), (1, 1, 4)):
    assert rt.cudaMemcpyAsync(on[to], c_void_p(on[from_].value + 2048), c_size_t(size), c_int(4), None) == 0
print('{"event": "phase"}', flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    """One that is there before the programs."""
    with observer() as agent:
        yield agent


def counted(agent: Agent, pid: int) -> Copies:
    """Return the bytes that the agent counted, by direction and host memory."""
    found: Copies = Counter()
    for point in agent.snapshot():
        if point.name == "gpu.cuda.memory.copies" and dict(point.resource.attributes)["process.pid"] == pid:
            known = dict(point.attributes)
            found[known["cuda.memcpy.kind"], known.get("cuda.memory.host.type", "")] += int(point.value.sum)
    return found


def sum_up(copies: Copies) -> dict[str, int]:
    """Return them by direction alone."""
    found: Counter[str] = Counter()
    for (kind, _), size in copies.items():
        found[kind] += size
    return dict(found)


def driver_counts(script: Script) -> dict[str, int]:
    """Return the bytes that the driver counted, by the direction that it found."""
    return {kind: int(copied.sum) for kind, copied in script.program.truth_now().copies.items() if copied.count}


def allocate_all(script: Script) -> list[int | str]:
    """Allocate memory of every kind on either device; some of odd sizes, and reserved for two devices."""
    found: list[int | str] = ["pageable"]
    for context in (0, 1):
        assert script.do(0, "enter", context)[0] == 0
        for kind in KINDS:
            code, pointer = script.do(0, "allocate", kind, ODD if kind != "registered" else 5 * 4096 + 8)
            assert code == 0
            assert pointer is not None
            found.append(pointer)
    script.do(0, "enter", 0)
    _, handle = script.do(0, "create", 2)
    _, pointer = script.do(0, "place", handle, 2)
    assert pointer is not None
    return [*found, pointer]


@pytest.mark.parametrize("how", HOWS)
def test_every_direction_is_what_the_driver_finds(agent: Agent, tmp_path: Path, how: str) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        places = allocate_all(script)
        size = 1
        for to in places:
            for from_ in places:
                if to == from_:
                    continue
                # Sizes tell the copies apart; both ends lie inside an allocation.
                assert script.do(0, "copy", how, to, ODD - 3000, from_, ODD - 2000, size) == (0, None)
                size += 1

        truth = driver_counts(script)

        assert sum_up(counted(agent, program.pid)) == truth
        assert set(truth) == {
            f"Memcpy{kind}" for kind in ("HostToDevice", "DeviceToHost", "DeviceToDevice", "HostToHost", "Peer")
        }


@pytest.mark.parametrize(
    ("part", "below"), [("cuda12", "cuda_runtime/lib/libcudart.so.12"), ("cuda13", "lib/libcudart.so.13")]
)
def test_the_first_device_of_nvidias_runtimes_is_known(agent: Agent, tmp_path: Path, part: str, below: str) -> None:
    """They make a primary context current before they retain it."""
    command = [sys.executable, "-S", "-c", _BY_THE_RUNTIME, ground.part(part) / below]
    with Program(command, tmp_path, {"MOCKCUDA_DEVICES": "2"}) as program:
        program.event("waiting")
        program.run_phase()

        assert sum_up(counted(agent, program.pid)) == {"MemcpyPeer": 3, "MemcpyDeviceToDevice": 4}
        assert usage(agent, program.pid) == {("device", 0): 4096, ("device", 1): 4096}


def test_memory_older_than_the_agent_leaves_the_direction_open(tmp_path: Path) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        _, older = script.do(0, "allocate", "device", ODD)
        with observer(program.pid) as agent:
            _, newer = script.do(0, "allocate", "device", ODD)
            _, pinned = script.do(0, "allocate", "host", ODD)
            for n, (to, from_) in enumerate([(newer, older), (older, newer), (newer, "pageable"), ("pageable", newer)]):
                assert script.do(0, "copy", "async", to, 0, from_, 0, 1 << n) == (0, None)
            script.do(0, "copy", "async", newer, 0, pinned, 0, 1 << 4)
            script.do(0, "copy", "async", pinned, 0, newer, 0, 1 << 5)
            script.do(0, "copy", "async", newer, 0, newer, 500, 1 << 6)

            assert counted(agent, program.pid) == {
                (UNKNOWN, ""): 15,
                ("MemcpyHostToDevice", "pinned"): 16,
                ("MemcpyDeviceToHost", "pinned"): 32,
                ("MemcpyDeviceToDevice", ""): 64,
            }


@pytest.mark.parametrize(("device_file", "direction"), [("/dev/null", UNKNOWN), (None, "MemcpyHostToDevice")])
def test_who_has_a_device_open_may_have_older_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device_file: str | None, direction: str
) -> None:
    """Its first call that is seen need not be its first: a library loaded later calls cuInit again."""
    load = BpfObject.load

    def load_for_null(self: BpfObject, **options: Any) -> None:
        self.set_variables({"device_major": os.major(os.stat("/dev/null").st_rdev)})
        load(self, **options)

    monkeypatch.setattr(BpfObject, "load", load_for_null)
    with start(tmp_path, "later", *([device_file] if device_file else [])) as program:
        program.event("waiting")
        with observer(program.pid) as agent:
            program.go()
            program.ready()
            script = Script(program)
            _, device = script.do(0, "allocate", "device", ODD)
            script.do(0, "copy", "async", device, 0, "pageable", 0, 1)

            assert sum_up(counted(agent, program.pid)) == {direction: 1}


@pytest.mark.parametrize("way", ["captured", "share"])
def test_memory_of_which_nothing_is_known_leaves_the_direction_open(agent: Agent, tmp_path: Path, way: str) -> None:
    """Of a graph's node, or of another process: from then on what is in no range may be such memory."""
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        _, device = script.do(0, "allocate", "device", ODD)
        script.do(0, "copy", "async", device, 0, "pageable", 0, 1)
        assert script.do(0, way, *([device] if way == "share" else [])) == (0, None)
        script.do(0, "copy", "async", device, 0, "pageable", 0, 2)
        script.do(0, "copy", "async", device, 0, device, 500, 4)

        assert sum_up(counted(agent, program.pid)) == {
            "MemcpyHostToDevice": 1, UNKNOWN: 2, "MemcpyDeviceToDevice": 4,
        }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_freed_is_the_hosts_again(agent: Agent, tmp_path: Path, kind: str) -> None:
    """The driver gives the address back, and the next pageable buffer may begin there; one may be registered twice."""
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        _, device = script.do(0, "allocate", "device", ODD)
        _, pointer = script.do(0, "allocate", kind, ODD)
        script.do(0, "copy", "async", device, 0, pointer, 0, 1)
        assert script.do(0, "free", kind, pointer) == (0, None)
        # What is mapped there now is the host's.
        assert script.do(0, "map_host", pointer, ODD) == (0, None)
        script.do(0, "copy", "async", device, 0, pointer, 0, 2)

        truth = driver_counts(script)

        copies = counted(agent, program.pid)
        assert sum_up(copies) == truth
        assert copies["MemcpyHostToDevice", "pinned"] == (kind in ("host", "registered"))


@pytest.mark.parametrize("many", [3, 300])
def test_what_a_context_held_is_the_hosts_again(agent: Agent, tmp_path: Path, many: int) -> None:
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        _, device = script.do(0, "allocate", "device", ODD)
        _, context = script.do(0, "new_context", 0)
        pointers = [script.do(0, "allocate", "device", ODD)[1] for _ in range(many)]
        script.do(0, "end_context", context)
        script.do(0, "enter", 0)
        until(lambda: usage(agent, program.pid)["device", 0] == ODD)
        for pointer in pointers:
            assert script.do(0, "map_host", pointer, ODD) == (0, None)
            script.do(0, "copy", "async", device, 0, pointer, 0, 2)

        assert sum_up(counted(agent, program.pid)) == driver_counts(script) == {"MemcpyHostToDevice": 2 * many}


@pytest.mark.parametrize("seed", range(3))
def test_addresses_inside_any_ranges_are_found(agent: Agent, tmp_path: Path, seed: int) -> None:
    """Ranges of all sizes, side by side and freed in any order, as an allocator leaves them."""
    chance = random.Random(seed)
    with start(tmp_path) as program:
        program.ready()
        script = Script(program)
        held: list[tuple[str, int, int]] = []
        for _ in range(120):
            if held and chance.random() < 0.3:
                kind, pointer, _ = held.pop(chance.randrange(len(held)))
                assert script.do(0, "free", kind, pointer) == (0, None)
            else:
                kind, size = chance.choice(KINDS), 1 + int(2 ** chance.uniform(0, 21))
                _, pointer = script.do(chance.randrange(3), "allocate", kind, size)
                assert pointer is not None
                held.append((kind, pointer, size))
        for _ in range(400):
            (_, to, room), (_, from_, size) = chance.choice(held), chance.choice(held)
            bytes_ = chance.randrange(1, min(room, size, 64) + 1)
            at, start_at = chance.randrange(room - bytes_ + 1), chance.randrange(size - bytes_ + 1)
            script.do(0, "copy", "async", to, at, from_, start_at, bytes_)

        assert sum_up(counted(agent, program.pid)) == driver_counts(script)
