"""Do stacks lead to the spans whose work they show? Each request's launches are known, and which stacks are linked to its span."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_gpu.exporters.otlp.settings import Protocol
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.signals.profiles import CPU, GPU_LAUNCHES, GPU_WAIT, Profile
from otel_gpu.signals.spans import Span, SpanKind
from tests.e2e.collector import Collector
from tests.e2e.processes import Agent, Program
from tests.e2e.requests import LAUNCHES
from tests.e2e.test_requests import ASYNC, BY_NEW_THREADS, THREADED, Load, server
from tests.e2e.test_sdk_context import ASYNC_WAYS, WAYS, Asked, serving, talking
from tests.span_reading import read_spans
from tests.waiting import until

CONFIG = """
receivers:
  profile: {{types: [launch, wait, cpu], stacks_per_second: 100000}}
exporters:
  file: {{path: "{out}"}}
{exporters}
service:
  interval: 500ms
"""
NEVER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
FIRST = 1_000_000
LATEST = 4
Ids = tuple[str, str]


def ids(span: Span) -> Ids:
    return span.context.trace_id.hex(), span.context.span_id.hex()


def linked(profiles: Sequence[Profile], kind: str) -> Counter[Ids | None]:
    """Return how much is linked to each span, and to none."""
    found: Counter[Ids | None] = Counter()
    for profile in profiles:
        if profile.type.name == kind:
            for sample in profile.samples:
                link = sample.link
                found[(link.trace_id.hex(), link.span_id.hex()) if link else None] += sample.value
    return found


@contextmanager
def observed(directory: Path, program: Program, exporters: str = "") -> Iterator[Agent]:
    """Observe a program with an agent that takes stacks and follows requests."""
    config = directory / "agent.yaml"
    config.write_text(CONFIG.format(out=directory / "out", exporters=exporters))
    with Agent(["--config", config, "--traces", "--profiles", "--pid", str(program.pid)], directory) as agent:
        agent.wait_attached()
        yield agent


def stop(program: Program, agent: Agent) -> None:
    """End a server, and then the agent."""
    program.process.terminate()
    program.event("end")
    assert agent.wait() == 0, agent.error_text


@pytest.mark.parametrize(
    ("name", "arguments", "hows"),
    [
        ("threads", (), THREADED),
        ("asgi", ("asyncio", "h11"), ASYNC),
        ("asgi", ("uvloop", "httptools"), ASYNC),
    ],
    ids=["threads", "uvicorn-asyncio", "uvicorn-uvloop"],
)
def test_stacks_lead_to_the_requests_that_asked_for_their_work(
    tmp_path: Path, name: str, arguments: tuple[str, ...], hows: Sequence[str]
) -> None:
    with server(tmp_path, name, *arguments, "background") as (program, port), observed(tmp_path, program) as agent:
        load = Load(port, hows)
        until(lambda: _is_linked(load, tmp_path), "no stack was linked", timeout_s=60)
        load.asked.clear()
        load.numbers = itertools.count(FIRST)
        load.run(300)
        stop(program, agent)

    profiles, spans = read_profiles(tmp_path / "out" / "profiles.jsonl"), read_spans(tmp_path / "out")
    launched = {
        ids(span): int(dict(span.attributes).get(LAUNCHES, 0)) for span in spans if span.kind is SpanKind.SERVER
    }
    numbers = {
        ids(span): int(str(dict(span.attributes)["url.path"]).split("/")[2]) for span in spans if ids(span) in launched
    }
    found = linked(profiles, GPU_LAUNCHES.name)
    # What nobody asked for, and what was launched before all was in place, is linked to nothing.
    assert found.pop(None) > 0
    shown = Counter({numbers[at]: n for at, n in found.items() if numbers[at] >= FIRST})
    missing = {n: (load.hows[n % len(load.hows)], shown[n]) for n, asked in load.asked.items() if shown[n] != asked}
    assert {n: of for n, of in missing.items() if of[0] not in BY_NEW_THREADS or of[1]} == {}
    assert shown.keys() <= load.asked.keys()
    assert {at: n for at, n in found.items() if n > launched[at]} == {}
    for kind in (GPU_WAIT, CPU):
        others = linked(profiles, kind.name)
        others.pop(None, 0)
        assert others.keys() <= launched.keys()
    assert linked(profiles, GPU_WAIT.name).total() > 0


def _is_linked(load: Load, directory: Path) -> bool:
    """Ask once more; tell whether all stacks of the latest requests that were told are linked."""
    load.run(1, clients=1)
    out = directory / "out" / "profiles.jsonl"
    if not out.exists() or not (directory / "out" / "traces.jsonl").exists():
        return False
    found, told = linked(read_profiles(out), GPU_LAUNCHES.name), _numbered(directory, load.asked)
    latest = sorted((number, at) for at, number in told.items())[-LATEST:]
    return len(latest) == LATEST and all(found[at] == load.asked[number] for number, at in latest)


def _numbered(directory: Path, numbers: Collection[int]) -> dict[Ids, int]:
    """Return the requests' spans that were sent, of those of these numbers."""
    spans = [span for span in read_spans(directory / "out") if span.kind is SpanKind.SERVER]
    found = {ids(span): int(str(dict(span.attributes)["url.path"]).split("/")[2]) for span in spans}
    return {at: number for at, number in found.items() if number in numbers}


@pytest.mark.parametrize(("kind", "ways"), [("threads", WAYS), ("asyncio", ASYNC_WAYS)])
@pytest.mark.parametrize("protocol", ["grpc"])
def test_stacks_lead_to_the_programs_own_spans_through_a_collector(
    collector: Collector, tmp_path: Path, kind: str, ways: Sequence[str], protocol: Protocol
) -> None:
    exporters = f'  otlp_grpc: {{endpoint: "{collector.endpoint(protocol)}"}}'
    with serving(tmp_path, kind) as program, observed(tmp_path, program, exporters) as agent:
        port = int(str(program.event("ready")["port"]))
        asked, warm = Asked(), itertools.count(FIRST)
        out = tmp_path / "out" / "profiles.jsonl"

        def is_linked() -> bool:
            before = Asked()
            with talking(port) as connection:
                before.ask(connection, next(warm), "plain")
            (spans,) = before.spans.values()
            asked.spans.update(before.spans)
            asked.launches.update(before.launches)
            at = tuple(spans[0].split("/"))
            until(lambda: out.exists() and _names(out, program), "there are no profiles")
            return at in linked(read_profiles(out), GPU_LAUNCHES.name)

        until(is_linked, "no stack was linked", timeout_s=60)
        late = Asked()
        late.ask_all(port, ways)
        stop(program, agent)
    profiles = read_profiles(collector.received("profiles", protocol))

    expected: Counter[Ids] = Counter()
    by_new_threads: set[Ids] = set()
    for number, spans in late.spans.items():
        for span in spans:
            trace, _, own = span.partition("/")
            expected[trace, own] += late.launches[number] // len(spans)
            if late.hows[number] in BY_NEW_THREADS:
                by_new_threads.add((trace, own))
    found = linked(profiles, GPU_LAUNCHES.name)
    missing = {at for at in expected if found[at] != expected[at]}
    assert missing < by_new_threads
    assert {at: found[at] for at in missing if found[at]} == {}
    known = {tuple(span.split("/")) for spans in (*asked.spans.values(), *late.spans.values()) for span in spans}
    # Before it was known where the program has its spans, requests had ours.
    assert found.keys() <= known | {None} | {ids(span) for span in read_spans(tmp_path / "out")}


def _names(out: Path, program: Program) -> bool:
    return any(dict(p.resource.attributes).get("process.pid") == program.pid for p in read_profiles(out))


def test_stacks_of_a_request_that_is_not_recorded_lead_nowhere(tmp_path: Path) -> None:
    with server(tmp_path, "threads") as (program, port), observed(tmp_path, program) as agent:
        load = Load(port, ("plain",))
        until(lambda: _is_linked(load, tmp_path), "no stack was linked", timeout_s=60)
        load.asked.clear()
        connection = load.connect()
        for _ in range(20):
            load.ask(connection, {"traceparent": NEVER})
        connection.close()
        stop(program, agent)

    profiles, spans = read_profiles(tmp_path / "out" / "profiles.jsonl"), read_spans(tmp_path / "out")
    found = linked(profiles, GPU_LAUNCHES.name)
    assert found[None] >= sum(load.asked.values())
    assert found.keys() - {None} <= {ids(span) for span in spans}
    assert NEVER.split("-")[1] not in {at[0] for at in found if at}
