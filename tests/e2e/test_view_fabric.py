"""Does the view's page show what real NCCL and verbs were asked for, to eyes, keys and screen readers alike?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from otel_gpu import Agent as OwnAgent
from otel_gpu.config.model import Config, Discovery
from otel_gpu.exporters.otlp.settings import OtlpSettings
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.rdma.settings import RdmaSettings
from otel_gpu.receivers.self.settings import SelfSettings
from otel_gpu.view.server import View
from otel_gpu.view.settings import ViewSettings
from tests.e2e import browser, ground
from tests.e2e.browser import Browser
from tests.e2e.processes import Agent, Program
from tests.e2e.test_real_nccl import _ASKED, _DEVICES, _SCRIPT
from tests.e2e.verbs import READ, RTS, SEND, WRITE, Observed, Verbs, built
from tests.waiting import until

_POSTED = {WRITE: ("write", 30, 4096), SEND: ("send", 20, 100), READ: ("read", 10, 777)}
# The rows of the table of a metric, each cell as it is spelt out: exact numbers stand in titles.
_CELLS = """(name => {
  const table = [...document.querySelectorAll("table")].find(t => t.caption.textContent === name);
  if (!table) return null;
  const heads = [...table.tHead.rows[0].cells].map(c => c.textContent);
  return [...table.tBodies[0].rows].map(row => Object.fromEntries([...row.cells].map((c, i) => [heads[i], c.classList.contains("num") ? (c.querySelector("[title]")?.title ?? c.innerText) : c.innerText.trim()])));
})"""
_CONTROLS = {
    "button", "link", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio", "slider", "tab", "menuitem",
    "image", "img", "table", "region", "navigation", "Iframe",
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if browser.find() is None:
        pytest.skip("no Chromium on PATH: `tests/ground/tools.sh` installs it")
    with Browser(tmp_path_factory.mktemp("pages")) as page:
        yield page


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """Return a view to which agents sent what two ranks of NVIDIA's NCCL and a program of verbs did."""
    library, where = ground.nccl("2.21.5"), built(tmp_path_factory.mktemp("verbs"))
    with View(ViewSettings(port=0, grpc_port=0)) as running:
        _collectives(running, library, tmp_path_factory.mktemp("nccl"))
        _posts(running, where)
        yield running


def _collectives(view: View, library: Path, directory: Path) -> None:
    config = directory / "agent.json"
    config.write_text(json.dumps({"receivers": {"nccl": {}, "self": {}}}))
    to = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{view.grpc_port}"}
    environment = {"MOCKCUDA_DEVICES": str(_DEVICES), "NCCL_DEBUG": ""}
    with Program([sys.executable, _SCRIPT, library], directory, environment) as program:
        program.ready()
        with Agent(["--config", config, "--pid", str(program.pid)], directory, to) as agent:
            agent.wait_watching()
            agent.wait_for(r"attached \d\d probes to .*nccl")
            program.run_phase()
            agent.stop()
        program.go()
        assert program.wait() == 0, program.error_text


def _posts(view: View, where: Path) -> None:
    with Verbs(where) as program:
        config = Config(
            receivers={
                "cuda": CudaSettings(),
                "rdma": RdmaSettings(processes="all", ports=False),
                "self": SelfSettings(),
            },
            exporters={"otlp": OtlpSettings(endpoint=f"http://localhost:{view.grpc_port}")},
            discovery=Discovery(pids=(program.pid,)),
            interval_s=0.5,
        )
        with OwnAgent(config) as agent:
            observed = Observed(agent)
            observed.until_placed(program)
            program.do("open", 2)
            observed.until_followed(program)
            program.do("pairs", 0, 1, 128, 0, RTS)
            for operation, (_, count, size) in _POSTED.items():
                program.do("post", 0, operation, count, size, 1, 0)
                assert program.do("poll", 0, count) == count
            until(lambda: _total(view, "rdma.messages") == sum(n for _, n, _ in _POSTED.values()), "not all has come")


def _total(view: View, name: str) -> float:
    with view.store.lock:
        return sum(series.total for series in view.store.series.of(name))


def _table(pages: Browser, name: str) -> list[dict[str, str]]:
    return json.loads(pages.run(f"JSON.stringify({_CELLS}({json.dumps(name)}))"))


def _number(text: str) -> int:
    return int(text.partition(" ")[0].replace(",", ""))


@pytest.fixture
def fabric(view: View, pages: Browser) -> Browser:
    pages.go("about:blank")
    pages.go(f"{view.url}#fabric")
    pages.until(f"({_CELLS}('nccl.collective.calls') ?? []).length && ({_CELLS}('rdma.messages') ?? []).length")
    return pages


def test_collectives_of_the_real_library_stand_in_its_table(fabric: Browser) -> None:
    for metric, which in (("nccl.collective.calls", 0), ("nccl.collective.bytes", 1)):
        found: Counter[tuple[str, str, str]] = Counter()
        for row in _table(fabric, metric):
            assert row["nccl.nranks"] == str(_DEVICES)
            assert row["nccl.rank"] in {"0", "1"}
            key = row["nccl.collective"], row["nccl.datatype"], row["nccl.reduction"]
            found[key] += _number(row["in all"])
        assert found == {(name, kind, by or ""): asked[which] for (name, kind, by), asked in _ASKED.items()}, metric
    assert fabric.errors == []


def test_what_was_posted_stands_in_the_tables_of_rdma(fabric: Browser) -> None:
    messages, amounts = (
        {row["rdma.operation"]: _number(row["in all"]) for row in _table(fabric, name)}
        for name in ("rdma.messages", "rdma.io")
    )
    assert messages == {name: count for name, count, _ in _POSTED.values()}
    assert amounts == {name: count * size for name, count, size in _POSTED.values()}
    durations = {row["rdma.operation"]: row["count"] for row in _table(fabric, "rdma.client.operation.duration")}
    assert durations == {name: str(count) for name, count, _ in _POSTED.values()}


def _tree(pages: Browser) -> list[dict[str, Any]]:
    """Return what a screen reader is told of the page and of the frames in it."""
    pages.call("Accessibility.enable")
    frames = [pages.call("Page.getFrameTree")["frameTree"]]
    found = []
    for frame in frames:
        frames += frame.get("childFrames", [])
        nodes = pages.call("Accessibility.getFullAXTree", frameId=frame["frame"]["id"])["nodes"]
        found += [node for node in nodes if not node["ignored"]]
    return found


@pytest.mark.parametrize("name", ["gpu", "flames", "requests", "fabric", "health"])
def test_a_screen_reader_is_told_what_everything_is(view: View, pages: Browser, name: str) -> None:
    pages.go("about:blank")
    pages.go(f"{view.url}#{name}")
    pages.until("document.getElementById('main').innerText.length > 50")

    nodes = _tree(pages)

    controls = 0
    for node in nodes:
        role, said = node["role"]["value"], node.get("name", {}).get("value", "").strip()
        is_focusable = any(p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", []))
        if role == "RootWebArea":
            continue
        if is_focusable:
            assert role not in {"generic", "none"}, node
        if is_focusable or role in _CONTROLS:
            assert said, node
            controls += 1
    assert controls > 5
    assert {"main", "navigation"} <= {node["role"]["value"] for node in nodes}


@pytest.mark.parametrize("name", ["gpu", "requests", "fabric", "health"])
def test_the_tabulator_reaches_every_control(view: View, pages: Browser, name: str) -> None:
    pages.go("about:blank")
    pages.go(f"{view.url}#{name}")
    pages.until("document.getElementById('main').innerText.length > 50")
    # A page that changes while it is gone through has no end: tables come and go with the minutes that it shows.
    if pages.run("document.getElementById('pause').getAttribute('aria-pressed')") == "false":
        pages.run("document.getElementById('pause').click()")
    pages.until("document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
    pages.run("window.reached = new Set(); document.activeElement.blur(); window.scrollTo(0, 0)")
    wanted = """[...document.querySelectorAll("a[href], button, select, input, [tabindex='0']")].filter(e => e.checkVisibility() && !e.disabled)"""
    unreached = f"{wanted}.filter(e => !window.reached.has(e))"
    for _ in range(1000):
        pages.press("Tab")
        if not pages.run(f"window.reached.add(document.activeElement), {unreached}.length"):
            break

    assert pages.run(f"{unreached}.map(e => e.outerHTML)") == []


def test_the_way_past_the_heading_stays_on_the_page(view: View, pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(f"{view.url}#health")
    pages.until("document.getElementById('main').innerText.length > 50")

    pages.press("Tab")
    assert pages.run("document.activeElement.className") == "skip"
    pages.press("Enter")

    pages.until("document.activeElement.id === 'main'")
    pages.until("location.hash === '#health'")
    assert pages.run("document.title") == "Health · otel-gpu"


def test_tables_that_come_and_go_leave_the_focus_where_it_is(view: View, pages: Browser) -> None:
    pages.go("about:blank")
    pages.go(f"{view.url}#health")
    pages.until("document.getElementById('main').innerText.length > 50")
    kept = """(async () => {
      const { FabricPage } = await import("./assets/metrics.js");
      const table = (name) => ({ name, description: "", kind: "counter", unit: "", attributes: [], rows: [], more: 0 });
      let shown = [];
      const page = new FabricPage({ seconds: 60, ask: async () => ({ nccl: shown.map(table), rdma: [], hardware: [] }) });
      document.getElementById("main").replaceChildren(page.element);
      const names = () => [...page.element.querySelectorAll("caption")].map((c) => c.textContent).join("");
      const seen = [];
      for (const next of ["bd", "abcd", "bd", "b", "cb"]) {
        shown = [...next];
        await page.refresh();
        if (next === "bd") [...page.element.querySelectorAll("table")].find((t) => t.caption.textContent === "b").querySelector("button").focus();
        seen.push([names(), document.activeElement.closest("table")?.caption.textContent]);
      }
      return seen;
    })()"""
    pages.run("document.getElementById('pause').click()")

    assert pages.run(kept) == [["bd", "b"], ["abcd", "b"], ["bd", "b"], ["b", "b"], ["cb", "b"]]
