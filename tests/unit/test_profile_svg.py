"""Is the picture of a flame graph whole, honest and harmless?"""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.exporters.recordings.svg import encode_svg, encode_svg_difference
from otel_gpu.signals.profiles import CPU, GPU_LAUNCHES, Frame, FrameKind, ProfileBuilder
from tests.unit.profile_examples import START_NS, hostile, python, resource, training

_SVG = "{http://www.w3.org/2000/svg}"
_ALLOWED = {f"{_SVG}{tag}" for tag in ("svg", "title", "style", "rect", "text", "g")}


def _frames(picture: str) -> dict[str, tuple[float, list[str]]]:
    """Return the width in percent and what is said, by the first line of what is said."""
    found = {}
    for group in ET.fromstring(picture).iter(f"{_SVG}g"):
        name, *said = group.find(f"{_SVG}title").text.split("\n")
        width, _ = found.get(name, (0.0, []))
        found[name] = (width + float(group.find(f"{_SVG}rect").get("width").removesuffix("%")), said)
    return found


def test_widths_are_shares_and_titles_say_the_values() -> None:
    frames = _frames(encode_svg([training()]))

    assert frames["all"][0] == pytest.approx(100)
    assert frames["train_step"][0] == pytest.approx(100 * 60_000 / 62_200, abs=0.01)
    assert frames["train_step"][1] == ["/app/train.py", "60,000, 96.5%"]


def test_every_profile_has_its_graph_and_no_frame_leaves_it() -> None:
    root = ET.fromstring(encode_svg([training(), training(CPU, pid=2)]))

    headings = [t.text for t in root.iter(f"{_SVG}text") if t.get("font-size") == "17"]
    assert headings == ["Kernel launches · train (4711)", "On-CPU samples · train (2)"]
    for group in root.iter(f"{_SVG}g"):
        box = group.find(f"{_SVG}rect")
        start, width = (float(box.get(a).removesuffix("%")) for a in ("x", "width"))
        assert start >= 0
        assert start + width <= 100.001


def test_it_has_no_script_and_loads_nothing() -> None:
    for profile in (training(), hostile()):
        for element in ET.fromstring(encode_svg([profile])).iter():
            assert element.tag in _ALLOWED
            assert not [name for name in element.attrib if "href" in name or name.startswith("on")]


@given(st.text())
def test_any_name_is_text(name: str) -> None:
    builder = ProfileBuilder(GPU_LAUNCHES, resource(name=name), START_NS)
    builder.add((Frame(FrameKind.NATIVE, name), Frame(FrameKind.CPYTHON, name, name, 1)), 1)

    root = ET.fromstring(encode_svg([builder.build(START_NS)]).encode())

    assert {element.tag for element in root.iter()} <= _ALLOWED


def test_very_deep_stacks_need_no_recursion() -> None:
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    builder.add(tuple(python(f"f{i}", 1) for i in range(5000)), 1)

    assert len(_frames(encode_svg([builder.build(START_NS)]))) == 5001


def test_a_difference_of_recordings_of_other_length_is_one_of_rates() -> None:
    before = training(skip="copy_kernel")
    after = replace(training(skip="fill_kernel", scale=2), duration_ns=2 * before.duration_ns)

    frames = _frames(encode_svg_difference([before], [after]))

    assert frames["train_step"][1][-1] == "2,000/s before, 2,000/s after (+0.0%)"
    assert frames["copy_kernel"][1][-1] == "0/s before, 43.3/s after (new)"


def test_nothing_recorded_is_still_a_picture() -> None:
    assert "Nothing was recorded" in encode_svg([])
    empty = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS).build(START_NS)
    assert "Nothing was recorded" in encode_svg([empty])
    ET.fromstring(encode_svg([empty]))
