"""Does the view's page show what was observed? The demo's programs, the agent, the view, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from otel_gpu.cli.demo import background_processes, driver
from otel_gpu.cli.demo.program import Program
from otel_gpu.exporters.wire.profiles_protobuf import encode_profiles
from otel_gpu.signals.self_metrics import MAP_ENTRIES
from otel_gpu.view.server import View
from otel_gpu.view.settings import ViewSettings
from tests.e2e import browser, ground
from tests.e2e.browser import Browser
from tests.e2e.processes import Agent
from tests.unit.profile_examples import HOSTILE_NAMES, hostile, training
from tests.unit.view_requests import NS, Metrics, Spans
from tests.waiting import until

_SIZES = ((1440, 900), (420, 900))
_MARKUP = "<img src=x onerror=\"document.title='xss'\"><script>document.title='xss'</script>"
_TOTALS = {
    "launches": ".stat:nth-child(1) .sub",
    "graph launches": ".stat:nth-child(2) .sub",
    "errors": ".stat:nth-child(7) dd",
}
# The cells of a table by the text of its headings; exact bytes stand in titles.
_ROWS = """(caption => {
  const table = [...document.querySelectorAll("table")].find(t => t.caption.textContent === caption);
  const heads = [...table.tHead.rows[0].cells].map(c => c.textContent);
  return [...table.tBodies[0].rows].map(row => Object.fromEntries([...row.cells].map((c, i) =>
    [heads[i], c.querySelector(".num [title], .cell [title], [title]")?.title.match(/^[0-9,]+ bytes$/) ? c.querySelector("[title]").title : c.innerText.trim()])));
})"""


def rows(page: Browser, caption: str) -> list[dict[str, str]]:
    """Return the rows of a table as a reader sees them."""
    return json.loads(page.run(f"JSON.stringify({_ROWS}({json.dumps(caption)}))"))


def number(text: str) -> int:
    found = re.match(r"[\d,]+", text)
    return int(found[0].replace(",", "")) if found else 0


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if browser.find() is None:
        pytest.skip("no Chromium on PATH: `tests/ground/tools.sh` installs it")
    with Browser(tmp_path_factory.mktemp("pages")) as page:
        yield page


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[View, Counter[str]]]:
    """Return a view to which an agent sent all that the demo's programs did, and what they say they did."""
    ground.part("mock")
    found = driver.find()
    directory = tmp_path_factory.mktemp("view")
    settings = ViewSettings(port=0, grpc_port=0)
    with (
        View(settings) as view,
        Program(found, found.modules[0]) as server,
        Program(found, found.modules[1]) as trainer,
    ):
        programs = (server, trainer)
        pids = [word for program in programs for word in ("--pid", str(program.pid))]
        configuration = directory / "agent.yaml"
        configuration.write_text(f"receivers: {{cuda: {{libraries: ['{found.library}']}}, self: }}\n")
        to = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{view.grpc_port}"}
        words = ["--config", str(configuration), *pids, "--profiles", "--traces"]
        with Agent(words, directory, to) as agent:
            agent.wait_attached()
            for program in programs:
                program.load()
            # Else their first calls may come before the agent has seen them map the driver: as processes they are older than
            # its probes, and whether they had page-locked memory before would not be known.
            until(lambda: _known_programs(view) == len(programs), "the agent does not know the programs")
            for program in programs:
                program.go()
            with background_processes.BackgroundProcess("otel_gpu.cli.demo.clients", server.said):
                until(lambda: view.store.spans.spans > 100, "no spans came")
                until(lambda: view.store.profiles.samples > 20, "no profiles came")
            did: Counter[str] = Counter()
            for program in programs:
                did.update(program.finish())
            agent.stop()
        yield view, did


def _known_programs(view: View) -> int:
    with view.store.lock:
        entries = [s for s in view.store.series.of(MAP_ENTRIES.name) if ("bpf.map.name", "programs") in s.attributes]
        return sum(int(series.value) for series in entries)


def test_the_totals_are_what_the_programs_did(seen: tuple[View, Counter[str]], pages: Browser) -> None:
    view, did = seen
    pages.look(_SIZES[0], dark=False)
    pages.go(view.url)
    pages.until("document.querySelectorAll('.chart canvas').length >= 5")

    for what, where in _TOTALS.items():
        assert number(pages.run(f"document.querySelector({json.dumps(where)}).innerText")) == did[what], what
    kernels = rows(pages, "Kernels")
    assert sum(number(row["launches in all"]) for row in kernels) == did["launches"]
    assert sum(number(row["in graphs in all"]) for row in kernels) == did["kernels in graphs"]
    by_name = {row["kernel"]: row for row in kernels}
    assert by_name["flash_attention"]["threads per block"] == "128"
    assert by_name["adam"]["blocks"] == by_name["adam"]["blocks"].strip() == "1,024"
    copies = rows(pages, "Copies")
    to_gpu = sum(number(row["in all"]) for row in copies if row["direction"] == "host → GPU")
    assert to_gpu == did["bytes to the GPU"]
    assert sum(number(row["in all"]) for row in copies if row["direction"] == "GPU → host") == did["bytes from the GPU"]
    assert {row["host memory"] for row in copies} == {"pageable", "pinned"}
    memory = {row["type"]: row for row in rows(pages, "Memory")}
    assert sum(number(row["allocated in all"]) for row in memory.values()) == did["bytes allocated"]
    waits = {row["in"]: row for row in rows(pages, "Waits")}
    assert number(waits["cuStreamSynchronize"]["waits"]) > 100
    assert "lower" in pages.run("document.body.innerText")
    assert pages.errors == []


def test_one_process_can_be_looked_at(seen: tuple[View, Counter[str]], pages: Browser) -> None:
    pages.go(seen[0].url)
    pages.until("document.querySelectorAll('#process option').length > 2")
    pages.until("[...document.querySelectorAll('td')].some(c => c.innerText.includes('flash_attention'))")

    pages.run(
        """(() => { const select = document.getElementById("process");
        select.value = [...select.options].find(o => o.text.startsWith("training")).value;
        select.dispatchEvent(new Event("change")); })()"""
    )

    pages.until("![...document.querySelectorAll('td')].some(c => c.innerText.includes('flash_attention'))")
    assert "adam" in {row["kernel"] for row in rows(pages, "Kernels")}


def test_a_request_leads_to_its_work(seen: tuple[View, Counter[str]], pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(f"{seen[0].url}#requests")
    pages.until("document.querySelectorAll('td a').length > 20")
    listed = rows(pages, "Requests")
    assert listed[0]["request"] == "POST /v1/completions"
    assert {row["status"] for row in listed} <= {"200", "507", "", "connection_closed"}
    done = next(row for row in listed if row["status"] == "200")
    assert number(done["launches"]) == 42
    assert done["work is"] == "exact"

    pages.run("[...document.querySelectorAll('tr')].find(r => r.innerText.includes('200')).querySelector('a').click()")

    pages.until("document.querySelectorAll('.span').length > 2")
    spans = pages.run("[...document.querySelectorAll('.span .label')].map(s => s.innerText)")
    assert spans[0] == "POST /v1/completions"
    assert {"gpu batch"} <= set(spans[1:]) <= {"gpu batch", "gpu wait", "gpu copy"}
    pages.run("document.querySelector('.span button').click()")
    assert "gpu.cuda.kernel.launch.calls" in pages.run("document.querySelector('.said').innerText")
    assert pages.errors == []


def test_a_flame_graph_shows_the_code_and_how_it_differs(seen: tuple[View, Counter[str]], pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(f"{seen[0].url}#flames")
    inside = "document.querySelector('iframe').contentDocument"
    pages.until(f"{inside}.querySelector('g.frame')")
    pages.run(
        """(() => { const of = [...document.querySelectorAll("select")].find(s => [...s.options].some(o => o.text.startsWith("training (")) && s.id !== "process");
        of.value = [...of.options].find(o => o.text.startsWith("training (")).value; of.dispatchEvent(new Event("change")); })()"""
    )
    names = f"[...{inside}.querySelectorAll('g.frame')].map(g => g.getAttribute('name'))"
    pages.until(f"{names}.includes('Trainer.step')")
    assert {"Trainer.backward", "cuLaunchKernel", "adam"} <= set(pages.run(names))

    pages.run(
        f"(() => {{ const search = {inside}.getElementById('search'); search.value = 'adam'; search.dispatchEvent(new Event('input')); }})()"
    )
    pages.until(f"{inside}.getElementById('found').innerText.includes('%')")
    pages.run(
        """(() => { const other = [...document.querySelectorAll("select")].find(s => [...s.options].some(o => o.value === "before"));
        other.value = "before"; other.dispatchEvent(new Event("change")); })()"""
    )

    pages.until(f"{inside}.getElementById('title').innerText.includes('difference')")
    assert pages.errors == []


def test_health_shows_the_agent_and_that_nothing_was_lost(seen: tuple[View, Counter[str]], pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(f"{seen[0].url}#health")
    pages.until("document.querySelectorAll('td').length > 30")

    text = pages.run("document.body.innerText")
    assert "process.memory.usage" in text
    assert [loss for loss in seen[0].store.losses.all() if "again" not in loss.reason.value] == []
    assert "All that came was kept." in text


@pytest.fixture(scope="module")
def hostile_view() -> Iterator[View]:
    """Return a view of programs whose every name is markup."""
    with View(ViewSettings(port=0, grpc_port=0)) as view:
        now = time.time_ns()
        metrics = Metrics(_MARKUP, 7, **{"k8s.pod.name": _MARKUP, "thread.name": _MARKUP})
        metrics.counter("gpu.cuda.kernel.launch.calls", 5, now - NS, now, cuda__kernel__name=_MARKUP)
        metrics.exponential("gpu.cuda.memory.copies", {3: 1}, 9, now - NS, now, cuda__memcpy__kind=_MARKUP, cuda__memory__host__type=_MARKUP)  # fmt: skip
        metrics.level("gpu.cuda.memory.usage", 9, now, gauge=False, cuda__memory__type=_MARKUP)
        metrics.exponential("gpu.cuda.synchronize.duration", {-3: 1}, 1, now - NS, now, cuda__function=_MARKUP)
        metrics.counter("gpu.cuda.errors", 5, now - NS, now, cuda__function=_MARKUP, error__type=_MARKUP)
        metrics.counter(f"nccl.{_MARKUP}", 5, now - NS, now, nccl__collective=_MARKUP)
        metrics.level("rdma.port.nack_ratio", 5, now, rdma__device=_MARKUP)
        agent = Metrics("otel-gpu", 8).level(f"otel_gpu.{_MARKUP}", 5, now, thread__name=_MARKUP)
        spans = Spans(_MARKUP).add(
            1, 1, _MARKUP, now - NS, NS, **{_MARKUP: _MARKUP, "http__response__status_code": _MARKUP}
        )
        profiles = [replace(p, start_ns=now - NS) for p in (hostile(), training())]
        of_thread = tuple(replace(s, attributes=(("thread.name", _MARKUP),)) for s in profiles[0].samples)
        profiles[0] = replace(profiles[0], samples=of_thread)
        for signal, request in (("metrics", metrics.request), ("metrics", agent.request), ("traces", spans.request),
                                ("profiles", encode_profiles(profiles))):  # fmt: skip
            view._grpc._intake.take(signal, request.SerializeToString())
        yield view


@pytest.mark.parametrize("name", ["gpu", "requests", f"requests/{1:032x}", "fabric", "health"])
def test_names_of_strangers_stay_text(hostile_view: View, pages: Browser, name: str) -> None:
    pages.go("about:blank")
    pages.go(f"{hostile_view.url}#{name}")
    pages.until("document.body.innerText.includes('onerror')")

    assert pages.run("document.title").endswith("otel-gpu")
    assert pages.run("document.querySelectorAll('img').length") == 1
    assert pages.run("document.scripts.length") == 2
    assert pages.errors == []


def test_frames_of_strangers_stay_text(hostile_view: View, pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(f"{hostile_view.url}#flames")
    inside = "document.querySelector('iframe').contentDocument"

    pages.until(f"{inside}.querySelectorAll('g.frame').length >= {min(len(HOSTILE_NAMES), 5)}")

    assert pages.run("document.title").endswith("otel-gpu")
    assert pages.run(f"{inside}.querySelectorAll('img').length") == 0
    names = f"[...{inside}.querySelectorAll('g.frame')].map(g => g.getAttribute('name'))"
    assert f"[thread {_MARKUP}]" in pages.run(names)
    pages.run(
        f"(() => {{ const search = {inside}.getElementById('search'); search.value = 'onerror'; search.dispatchEvent(new Event('input')); }})()"
    )
    pages.until(f"{inside}.getElementById('found').innerText.includes('%')")
    assert pages.errors == []


def test_without_data_it_says_which_command_sends_some(pages: Browser) -> None:
    with View(ViewSettings(port=0, grpc_port=0)) as view:
        for name, command in (
            ("gpu", "otel-gpu run --profiles --traces"),
            ("flames", "otel-gpu run --profiles"),
            ("requests", "otel-gpu run --traces"),
            ("fabric", "receivers: {nccl: }"),
            ("health", "otel-gpu run"),
        ):
            pages.go("about:blank")
            pages.go(f"{view.url}#{name}")
            pages.until(f"document.body.innerText.includes({json.dumps(command)})")
        assert pages.errors == []
    pages.until("!document.getElementById('trouble').hidden")
    assert "otel-gpu view" in pages.run("document.getElementById('trouble').innerText")
    pages.errors.clear()


@pytest.mark.parametrize("size", _SIZES, ids=["wide", "narrow"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_follows_the_desktop(
    seen: tuple[View, Counter[str]], pages: Browser, size: tuple[int, int], dark: bool
) -> None:
    pages.look(size, dark=dark)
    for name in ("gpu", "flames", "requests", "fabric", "health"):
        pages.go("about:blank")
        pages.go(f"{seen[0].url}#{name}")
        pages.until("document.getElementById('main').innerText.length > 50")
        assert pages.run("document.documentElement.scrollWidth <= innerWidth"), name
        assert pages.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    pages.look(_SIZES[0], dark=False)


def test_all_of_it_is_reached_by_keys_and_has_a_name(seen: tuple[View, Counter[str]], pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(seen[0].url)
    pages.until("document.querySelector('td')")

    pages.press("3")
    pages.until("location.hash === '#requests' && document.querySelectorAll('td a').length > 5")
    pages.press("/")
    assert pages.run("document.activeElement.type") == "search"
    pages.press("Escape")
    pages.run("document.activeElement.blur()")
    pages.press("t")
    assert pages.run("document.documentElement.dataset.theme") == "dark"
    pages.press("t")
    pages.run("document.querySelector('th button').focus()")
    pages.press("Enter")
    assert pages.run("document.querySelector('th').getAttribute('aria-sort')") in {"descending", "ascending"}
    unnamed = """[...document.querySelectorAll("button, select, input, a, [role=img], iframe, table")].filter(e =>
      !(e.getAttribute("aria-label") || e.innerText?.trim() || e.title || e.closest("label") || e.caption)).map(e => e.outerHTML)"""
    for name in ("gpu", "flames", "requests", "fabric", "health"):
        pages.run(f"location.hash = '#{name}'")
        pages.until("document.getElementById('main').innerText.length > 50")
        assert pages.run(unnamed) == []


def test_the_command_ends_when_told() -> None:
    command = [sys.executable, "-m", "otel_gpu", "view", "--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        assert view.stdout.readline().startswith("the page: http://localhost:")
        view.stdout.readline()
        with open(f"/proc/{view.pid}/status") as status:
            assert re.search(r"CapEff:\s+0+\n", status.read())
        view.terminate()
        assert view.wait(20) == 0


def test_q_ends_the_demo_at_a_terminal(tmp_path: Path) -> None:
    ground.part("mock")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "otel_gpu", "demo", "-o", str(tmp_path / "demo.html")]
    with subprocess.Popen(["setsid", "--ctty", "--wait", *command], stdin=theirs, stdout=theirs, stderr=theirs) as demo:
        os.close(theirs)
        text = b""
        while b"q stops everything" not in text:
            text += os.read(ours, 4096)
        assert re.search(rb"the view: http://localhost:\d+/", text)
        os.write(ours, b"q")
        try:
            while part := os.read(ours, 4096):
                text += part
        except OSError:  # what a terminal says when nobody is there any more
            pass
        assert demo.wait(60) == 0
    os.close(ours)
    assert text.count(b"equal") == 7
    assert (tmp_path / "demo.html").exists()
