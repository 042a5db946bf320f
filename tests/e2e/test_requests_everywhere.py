"""Does every launch go to the request that asked for it, whichever CPython serves? From 3.8 to 3.15, shared and static."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_gpu.signals.spans import Span
from tests.cpythons import Interpreter, interpreters
from tests.e2e import ground
from tests.e2e.processes import DEADLINE_S, Program
from tests.e2e.requests import Following
from tests.e2e.test_requests import SERVERS, Load, assert_missing_by_new_threads_alone, judge, number_of, owned

THREADED = ("plain", "pool", "map", "thread", "context", "pool_context", "copies", "chunks")
AWAITED = (
    "plain",
    "awaits",
    "gather",
    "task",
    "to_thread",
    "executor",
    "own_pool",
    "thread",
    "soon",
    "later",
    "context",
    "variable",
    "copies",
    "stream",
)
SERVED = {"threads": THREADED, "streams": AWAITED}
_ALL = interpreters(with_jit=True)
_HERE = [i for i in _ALL if not i.missing]
_EACH = 1_000_000
"""Numbers of requests that one server may have."""
_FILES = ("standard.py", "gpu.py", "many_clients.py")


@contextmanager
def serving(interpreter: Interpreter, directory: Path, how: str, *more: str) -> Iterator[tuple[Program, int]]:
    """Run the server under an interpreter, which may have a root of its own, and say on which port it listens."""
    directory.mkdir(exist_ok=True)
    root, inside = directory, str(directory)
    if "chroot" in interpreter.command:
        root = Path(interpreter.command[1]) / "tmp" / f"serves-{os.getpid()}-{interpreter.name}-{how}"
        inside = f"/tmp/{root.name}"
    root.mkdir(exist_ok=True)
    try:
        for name in _FILES:
            shutil.copy(SERVERS / name, root)
        shutil.copy(ground.part("mock") / "libcuda.so.1", root)
        environment = {"LD_LIBRARY_PATH": inside, "MOCKCUDA_TRUTH": "", **dict(interpreter.environment)}
        with Program([*interpreter.command, f"{inside}/{_FILES[0]}", how, *more], directory, environment) as program:
            yield program, int(str(program.event("ready")["port"]))
    finally:
        if root != directory:
            shutil.rmtree(root)


@dataclass(frozen=True)
class Outcome:
    """What was charged to the requests of every server, and to nobody."""

    spans: Mapping[tuple[str, str], Sequence[Span]]
    loads: Mapping[tuple[str, str], Load]
    owned: int
    unattributed: Mapping[str, int]
    seen: int
    launched: int


@pytest.fixture(scope="module")
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Ask all servers of the tests that run, one after another: to begin to follow takes time, and is done once."""
    asked = {
        item.callspec.params["interpreter"]
        for item in request.session.items
        if item.path == request.path and "interpreter" in getattr(getattr(item, "callspec", None), "params", ())
    }
    here = [i for i in _HERE if i in asked] or [i for i in _HERE if i.is_in_short]
    if not here:
        pytest.skip("no CPython is here")
    directory = tmp_path_factory.mktemp("servers")
    programs, loads = {}, {}
    with ExitStack() as stack:
        for interpreter, how in itertools.product(here, SERVED):
            name = interpreter.name, how
            programs[name], port = stack.enter_context(
                serving(interpreter, directory / "-".join(name), how, "background")
            )
            loads[name] = Load(port, SERVED[how], numbers=itertools.count(len(loads) * _EACH + 1))
        following = stack.enter_context(Following([p.pid for p in programs.values()]))
        following.wait_followed()
        for load in loads.values():
            load.run(20 * len(load.hows))
        following.wait_spans(sum(len(load.asked) for load in loads.values()))
        for program in programs.values():
            program.process.send_signal(signal.SIGTERM)
        launched = sum(int(str(p.event("end")["launches"])) for p in programs.values())
        for program in programs.values():
            program.process.wait(DEADLINE_S)
        following.end()

        of_server = defaultdict(list)
        for span in following.servers:
            of_server[number_of(span) // _EACH].append(span)
        return Outcome(
            {name: of_server[n] for n, name in enumerate(loads)},
            loads,
            owned(following),
            following.unattributed(),
            following.launches(),
            launched,
        )


@pytest.mark.parametrize("interpreter", _ALL, ids=lambda i: i.name)
@pytest.mark.parametrize("how", SERVED)
def test_every_launch_goes_to_its_request(interpreter: Interpreter, how: str, request: pytest.FixtureRequest) -> None:
    if interpreter.missing:
        pytest.skip(interpreter.missing)
    outcome: Outcome = request.getfixturevalue("outcome")
    name = interpreter.name, how
    assert judge(outcome.spans[name], outcome.loads[name]).wrong == 0
    assert_missing_by_new_threads_alone(outcome.spans[name], outcome.loads[name])


def test_what_nobody_asked_for_is_nobodys_and_nothing_is_counted_twice_or_left_out(outcome: Outcome) -> None:
    assert outcome.owned == sum(judge(spans, outcome.loads[name]).right for name, spans in outcome.spans.items())
    assert outcome.owned + sum(outcome.unattributed.values()) == outcome.seen
    assert outcome.unattributed["no_request"] > 0
    assert outcome.seen <= outcome.launched
