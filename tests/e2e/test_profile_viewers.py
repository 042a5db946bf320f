"""Do the programs that people look at profiles with show the truth? A browser for HTML, `go tool pprof` for pprof."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from otel_gpu.exporters.recordings.files import write_difference, write_profile
from otel_gpu.exporters.recordings.flame_tree import flame_tree
from otel_gpu.signals.profiles import (
    GPU_ALLOC_SPACE,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    FileMapping,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
)
from tests.unit.profile_examples import HOSTILE_NAMES, START_NS, hostile, python, resource, training

_BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable")

# A headless browser that only dumps its page draws no frames, and transitions wait for them.
_FRAMES = "<head><script>requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 16);</script>"

# Runs in the page once it has settled, and leaves what a reader would see where the test finds it.
_REPORT = """
<script>
addEventListener("load", () => setTimeout(async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const frames = () => [...document.querySelectorAll("g.frame")];
  const frame = (name) => frames().find((g) => g.getAttribute("name") === name);
  const widths = () => Object.fromEntries(frames().map((g) => [g.getAttribute("name"), g.querySelector("rect").getBoundingClientRect().width]));
  const tip = () => document.getElementById("tip").innerText;
  const report = {};
  try {
    %s
  } catch (error) { report.error = String(error); }
  document.body.insertAdjacentHTML("beforeend", "<pre id=report></pre>");
  document.getElementById("report").textContent = JSON.stringify(report);
}, 1000));
</script>
</body>"""


def in_browser(page: Path, script: str) -> Any:
    """Return what a script finds in a page that a headless browser shows, with no network to be had."""
    browser = next((b for b in _BROWSERS if shutil.which(b)), None)
    if browser is None:
        pytest.skip("no Chromium on PATH: `tests/ground/tools.sh` installs it")
    probed = page.with_suffix(".probed.html")
    text = page.read_text().replace("<head>", _FRAMES, 1).replace("</body>", _REPORT % script)
    probed.write_text(text)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,800"]
    command += [f"--user-data-dir={page.parent}/browser", "--virtual-time-budget=20000", "--dump-dom", probed.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="report">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-2000:]
    report = json.loads(unescape(found[1]))
    assert "error" not in report, report
    return report


def test_a_browser_shows_every_frame_and_the_total(tmp_path: Path) -> None:
    write_profile(training(), tmp_path / "a.html")

    seen = in_browser(tmp_path / "a.html", "report.text = document.body.innerText; report.widths = widths();")

    assert "62,200" in seen["text"]
    assert "1.4 %" in seen["text"]
    nodes = flame_tree([training()]).nodes
    assert set(seen["widths"]) == {node.key[1] for node in nodes}
    whole = seen["widths"]["all"]
    assert seen["widths"]["train_step"] == pytest.approx(whole * 60_000 / 62_200, abs=2)
    assert seen["widths"]["Tensor.backward"] == pytest.approx(whole * 25_600 / 62_200, abs=2)


def test_a_reader_can_search_zoom_and_read_lines(tmp_path: Path) -> None:
    write_profile([training(GPU_INUSE_SPACE, scale=2**20), training()], tmp_path / "a.html")

    seen = in_browser(
        tmp_path / "a.html",
        """
        report.before = document.getElementById("facts").innerText;
        frame("train_step").dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); report.bytes = tip();
        const graphs = document.getElementById("graphs");
        graphs.value = "1"; graphs.dispatchEvent(new Event("change")); await wait(800);
        frame("train_step").dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); report.tip = tip();
        const search = document.getElementById("search");
        search.value = "sgemm"; search.dispatchEvent(new Event("input")); await wait(800);
        report.found = document.getElementById("found").innerText;
        frame("Tensor.backward").dispatchEvent(new MouseEvent("click", {bubbles: true})); await wait(1500);
        report.zoomed = widths();
        document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"})); await wait(1500);
        report.reset = widths();
        """,
    )

    assert "60.7 GiB" in seen["before"]
    assert re.search(rf"total\s+58\.6 GiB\s+96\.5 %\s+{60_000 << 20:,} B", seen["bytes"])
    assert re.search(r"itself\s+0 B\s+0 %\s", seen["bytes"])
    assert "/app/train.py" in seen["tip"]
    assert re.search(r"line 41\s+28,800\s+48\.0 %", seen["tip"])
    assert seen["found"] == "26,500 · 42.6 %"
    assert seen["zoomed"]["Tensor.backward"] == pytest.approx(seen["zoomed"]["all"], abs=1)
    assert "AdamW.step" not in seen["zoomed"]
    assert seen["reset"]["Tensor.backward"] < seen["reset"]["all"] / 2


def test_a_browser_shows_what_grew_and_what_shrank(tmp_path: Path) -> None:
    before, after = training(skip="flash_fwd_kernel"), training(pid=9, skip="copy_kernel")
    write_difference(before, after, tmp_path / "a.html")

    seen = in_browser(
        tmp_path / "a.html",
        """
        const hue = (name) => getComputedStyle(frame(name).querySelector("rect")).fill.match(/\\d+/g).map(Number);
        report.facts = document.getElementById("facts").innerText;
        report.grew = hue("flash_fwd_kernel"); report.shrank = hue("copy_kernel"); report.same = hue("flash_bwd_kernel");
        frame("flash_fwd_kernel").dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); report.tip = tip();
        [...document.querySelectorAll("#widths button")].find((b) => b.value === "after").click(); await wait(800);
        report.after = Object.keys(widths());
        """,
    )

    assert "+7,700" in seen["facts"]
    assert seen["grew"][0] > seen["grew"][2] + 80
    assert seen["shrank"][2] > seen["shrank"][0] + 80
    assert max(seen["same"]) - min(seen["same"]) < 20
    assert re.search(r"change\s+\+9,000\s+new", seen["tip"])
    assert "copy_kernel" not in seen["after"]


def test_a_browser_compares_recordings_of_other_length_by_rate(tmp_path: Path) -> None:
    before = training(skip="copy_kernel")
    write_difference(before, replace(training(scale=2), duration_ns=2 * before.duration_ns), tmp_path / "a.html")

    seen = in_browser(
        tmp_path / "a.html",
        """
        const colour = (name) => getComputedStyle(frame(name).querySelector("rect")).fill.match(/\\d+/g).map(Number);
        report.facts = document.getElementById("facts").innerText; report.same = colour("flash_fwd_kernel");
        frame("copy_kernel").dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); report.tip = tip();
        """,
    )

    assert "2,030/s" in seen["facts"]
    assert max(seen["same"]) - min(seen["same"]) < 20
    assert re.search(r"after\s+43\.3/s", seen["tip"])


def _through_ctypes() -> Profile:
    """Return what a Python function launched by ctypes, from two lines that lead through as many frames or fewer."""
    ffi = FileMapping("/usr/lib/libffi.so.8.1.2")
    frames = [Frame(FrameKind.NATIVE, name, mapping=ffi) for name in ("ffi_call_unix64", "ffi_call_int", "ffi_call")]
    interpreter = Frame(FrameKind.NATIVE, "cfunction_thing", mapping=FileMapping("/usr/bin/python3.11"))
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    kernel = Frame(FrameKind.CUDA, "vector_add")
    builder.add((kernel, *frames, interpreter, python("train_step", 5), python("main", 9)), 30)
    builder.add((kernel, *frames[1:], interpreter, python("train_step", 6), python("main", 9)), 10)
    builder.add((Frame(FrameKind.CUDA, "other"), interpreter, python("main", 9)), 2)
    return builder.build(START_NS + 10**9)


def test_frames_of_the_interpreter_are_folded_with_their_count_and_python_can_stand_alone(tmp_path: Path) -> None:
    write_profile(_through_ctypes(), tmp_path / "a.html")

    seen = in_browser(
        tmp_path / "a.html",
        """
        const names = () => frames().map((g) => g.getAttribute("name")).sort();
        const key = (key, on = document) => on.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        report.folded = names(); report.foldedWidths = widths();
        frame("[interpreter, libffi: 3–4 frames]").dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); report.tip = tip();
        key("f"); await wait(800); report.unfolded = names();
        key("f"); key("p"); await wait(800); report.python = names(); report.pythonWidths = widths();
        report.pressed = document.getElementById("python").getAttribute("aria-pressed");
        """,
    )

    rest = ["all", "main", "train_step", "other", "vector_add"]
    assert seen["folded"] == sorted([*rest, "[interpreter, libffi: 3–4 frames]", "cfunction_thing"])
    whole = seen["foldedWidths"]["all"]
    assert seen["foldedWidths"]["[interpreter, libffi: 3–4 frames]"] == pytest.approx(whole * 40 / 42, abs=2)
    assert seen["foldedWidths"]["vector_add"] == pytest.approx(whole * 40 / 42, abs=2)
    assert "ffi_call_unix64" in seen["tip"]
    assert "ffi_call_int" in seen["unfolded"]
    assert seen["python"] == sorted(rest)
    assert seen["pythonWidths"]["vector_add"] == pytest.approx(whole * 40 / 42, abs=2)
    assert seen["pressed"] == "true"


def test_all_of_the_page_is_reached_by_keys_and_the_orientation_stays(tmp_path: Path) -> None:
    write_profile([training(), training(GPU_INUSE_SPACE)], tmp_path / "a.html")

    seen = in_browser(
        tmp_path / "a.html",
        """
        const key = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        const top = (name) => frame(name).getBoundingClientRect().top;
        report.hangs = top("train_step") > top("all");
        document.getElementById("chart").focus();
        for (let i = 0; i < 5; i += 1) key("ArrowDown");
        report.current = document.querySelector("g.current").getAttribute("name");
        report.spoken = document.getElementById("spoken").textContent;
        key("Enter"); await wait(1500); report.zoomed = widths();
        key("Escape"); await wait(1500); report.reset = widths();
        key("/"); report.focused = document.activeElement.id;
        document.getElementById("search").value = "AdamW.step"; key("Enter"); await wait(300);
        report.match = document.querySelector("g.current").getAttribute("name");
        key("i"); await wait(800); report.stands = top("train_step") < top("all");
        const graphs = document.getElementById("graphs");
        graphs.value = "1"; graphs.dispatchEvent(new Event("change")); await wait(800);
        report.stays = top("train_step") < top("all"); report.kept = localStorage.getItem("otel-gpu flame graph");
        """,
    )

    assert seen["hangs"]
    assert seen["current"] == "train_step"
    assert seen["spoken"].startswith("train_step, total 60,000 96.5 %")
    assert seen["zoomed"]["train_step"] == pytest.approx(seen["zoomed"]["all"], abs=1)
    assert seen["reset"]["train_step"] < seen["reset"]["all"] - 20
    assert (seen["focused"], seen["match"]) == ("search", "AdamW.step")
    assert seen["stands"]
    assert seen["stays"]
    assert json.loads(seen["kept"])["orientation"] == "flame"


def test_a_picture_is_drawn_by_a_browser(tmp_path: Path) -> None:
    write_profile([training(), hostile()], tmp_path / "a.svg")
    (tmp_path / "a.html").write_text(f"<html><head></head><body>{(tmp_path / 'a.svg').read_text()[39:]}</body></html>")

    seen = in_browser(
        tmp_path / "a.html",
        """
        const box = (title) => [...document.querySelectorAll("g")].find((g) => g.querySelector("title").textContent.startsWith(title))
          .querySelector("rect").getBoundingClientRect();
        report.share = box("train_step").width / box("all").width; report.scripts = document.querySelectorAll("svg script").length;
        """,
    )

    assert seen["share"] == pytest.approx(60_000 / 62_200, abs=0.002)
    assert seen["scripts"] == 0


def test_hostile_names_stay_text_in_a_browser(tmp_path: Path) -> None:
    write_profile(hostile(), tmp_path / "a.html")

    seen = in_browser(
        tmp_path / "a.html",
        """
        report.title = document.title; report.scripts = document.scripts.length; report.images = document.images.length;
        report.names = Object.keys(widths());
        """,
    )

    assert seen["title"].startswith("Kernel launches · </title><script>alert(1)</script>")
    assert (seen["scripts"], seen["images"]) == (5, 0)
    assert len(seen["names"]) == len(HOSTILE_NAMES) + 1
    assert max(map(len, seen["names"])) <= 1000


def test_a_huge_recording_opens(tmp_path: Path) -> None:
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    for i in range(20_000):
        frames = tuple(python(f"f{depth}_{i % (7 * depth + 3)}", depth + 1) for depth in range(30, 0, -1))
        builder.add(frames, 1 + i % 1000)
    profile = builder.build(START_NS + 10**9)
    write_profile(profile, tmp_path / "a.html")

    seen = in_browser(tmp_path / "a.html", "report.frames = frames().length; report.text = document.body.innerText;")

    assert seen["frames"] > 1000
    assert f"{profile.total:,}" in seen["text"]
    assert "too narrow to see" in seen["text"]


def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    write_profile([], tmp_path / "a.html")

    seen = in_browser(tmp_path / "a.html", "report.text = document.body.innerText;")

    assert "Nothing was recorded." in seen["text"]


def pprof(path: Path, *arguments: str) -> str:
    """Return what `go tool pprof` says of a file."""
    if shutil.which("go") is None:
        pytest.skip("no go on PATH: `go tool pprof` reads the file as users do")
    environment = {**os.environ, "PPROF_TMPDIR": str(path.parent), "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        ["go", "tool", "pprof", "-symbolize=none", *arguments, str(path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment,
    )
    if "no such tool" in done.stderr:
        pytest.skip("this go comes without pprof")
    assert done.returncode == 0, done.stderr
    return done.stdout


def flat_values(top: str) -> dict[str, tuple[int, int]]:
    rows = (line.split(maxsplit=5) for line in top.split("cum%\n")[1].splitlines())
    return {row[5]: (int(row[0]), int(row[3])) for row in rows}


def test_pprof_shows_the_same_values(tmp_path: Path) -> None:
    profile = training()
    write_profile(profile, tmp_path / "a.pb.gz")

    top = pprof(tmp_path / "a.pb.gz", "-top", "-nodefraction=0")

    assert "File: python3.11" in top
    assert "Type: gpu_launches" in top
    values = flat_values(top)
    assert values["ampere_sgemm_128x64_nt"] == (12_300, 12_300)
    assert values["train_step"] == (0, 60_000)
    assert values["<module>"] == (0, 61_300)
    assert values["vectorized_elementwise_kernel<4, GeluFunctor>"] == (3_500, 3_500)


def test_pprof_reads_every_type_of_a_file(tmp_path: Path) -> None:
    write_profile([training(GPU_ALLOC_SPACE, scale=2**20), training(GPU_LAUNCHES)], tmp_path / "a.pb.gz")

    space = pprof(tmp_path / "a.pb.gz", "-top", "-sample_index=gpu_alloc_space")
    launches = pprof(tmp_path / "a.pb.gz", "-top", "-sample_index=gpu_launches")

    assert "12300MB" in space or "12.01GB" in space
    assert "62200 total" in launches


def test_pprof_takes_hostile_names_and_differences(tmp_path: Path) -> None:
    write_profile(hostile(), tmp_path / "hostile.pb.gz")
    write_difference(training(skip="copy_kernel"), training(skip="fill_kernel"), tmp_path / "diff.pb.gz")

    assert "55, 100% of 55 total" in pprof(tmp_path / "hostile.pb.gz", "-top")
    values = flat_values(pprof(tmp_path / "diff.pb.gz", "-top", "-nodefraction=0"))
    assert (values["copy_kernel"][0], values["fill_kernel"][0]) == (1_300, -900)
