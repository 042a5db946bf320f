"""What does `otel-gpu top` draw, and what do keys do to it?"""

from __future__ import annotations

import json

import pytest

from otel_gpu.cli.terminals import knows_utf8
from otel_gpu.cli.top.document import document
from otel_gpu.cli.top.drawing import Letters, lines
from otel_gpu.cli.top.figures import Reading, figures
from otel_gpu.cli.top.interval import Interval
from otel_gpu.cli.top.keys import _keys
from otel_gpu.cli.top.screen import Screen
from otel_gpu.cli.top.sources import Taken
from otel_gpu.cli.top.tables import tables
from otel_gpu.signals.metrics import Buckets, Resource, attributes
from otel_gpu.signals.quantiles import quantile

LAUNCHES = "gpu.cuda.kernel.launch.calls"
HOSTILE = "\x1b]0;x\x07\n\u202e[red]" + "k" * 10_000


def process(pid: int, service: str = "train") -> Resource:
    return Resource(attributes({"process.pid": pid, "service.name": service, "service.instance.id": str(pid)}))


def launched(pid: int, kernel: str, count: int, service: str = "train") -> Reading:
    return Reading(process(pid, service), LAUNCHES, {"cuda.kernel.name": kernel}, count)


def interval(*now: Reading, before: tuple[Reading, ...] = (), seconds: float = 2.0) -> Interval:
    return Interval.between(Taken(figures(before), 10.0), Taken(figures(now), 10.0 + seconds))


def screen(*now: Reading, unicode: bool = True) -> Screen:
    found = Screen(Letters(unicode), "host")
    found.show(interval(*now))
    return found


def text(of: Screen, width: int = 100, height: int = 24) -> list[str]:
    return [line.plain for line in of.draw(width, height)]


def test_series_of_one_kernel_on_two_devices_are_one_row_with_its_rate() -> None:
    two = [Reading(process(1), LAUNCHES, {"cuda.kernel.name": "k", "cuda.device.index": d}, 30) for d in (0, 1)]
    found = interval(*two, before=(launched(1, "k", 20),))

    [kernel] = document(found, 0.0)["processes"][0]["kernels"]

    assert (kernel["launches"], kernel["launches_per_second"]) == (60, 20.0)


def test_a_counter_that_began_anew_has_no_negative_rate() -> None:
    found = document(interval(launched(1, "k", 10), before=(launched(1, "k", 500),)), 0.0)

    assert found["processes"][0]["launches_per_second"] == 5.0


def test_without_anything_before_there_are_totals_and_no_rates() -> None:
    found = document(Interval.between(None, Taken(figures([launched(1, "k", 10)]), 1.0)), 0.0)

    assert json.loads(json.dumps(found))["processes"][0]["launches"] == 10
    assert found["processes"][0]["launches_per_second"] is None


def test_copies_and_requests_are_told_apart_by_process() -> None:
    copied = Reading(
        process(1), "gpu.cuda.memory.copies", {"cuda.memcpy.kind": "MemcpyHostToDevice"}, Buckets({9: 2}, 2048)
    )
    asked = Reading(process(2), "http.server.request.duration", {}, Buckets({-10: 100}, 0.15))
    work = Reading(process(2), "gpu.cuda.request.kernel.launch.calls", {}, Buckets({1: 100}, 300))

    one, two = document(interval(copied, asked, work), 0.0)["processes"]

    assert one["copies"][0]["bytes_per_second"] == 1024
    assert one["requests"] is None
    assert (two["requests"]["per_second"], two["requests"]["launches_per_request"]) == (50, 3)
    assert 2**-10 < two["requests"]["p50"] < two["requests"]["p99"] <= 2**-9


@pytest.mark.parametrize("width", [1, 8, 20, 40, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_hostile_names_are_printable_and_fit_whatever_the_width(width: int, unicode: bool) -> None:
    of = screen(launched(1, HOSTILE, 10, HOSTILE), launched(2, "矩阵乘法" * 50, 5), unicode=unicode)

    for key in "12345678":
        of.press(key)
        drawn = of.draw(width, 12)
        assert len(drawn) <= 12
        assert all(line.plain.isprintable() and line.cell_len <= width for line in drawn)
        assert unicode or all(line.plain.isascii() for line in drawn)


def test_columns_that_matter_least_go_first() -> None:
    [shown, *_] = tables(interval(launched(4711, "k", 10)))

    heads = [next(iter(lines(shown, Letters(), room))).plain.split() for room in (0, 40, 24)]

    assert {"pid", "process", "kernels/s", "memory", "all"} <= set(heads[0])
    assert heads[1][:3] == ["pid", "process", "kernels/s"]
    assert heads[2] == ["pid", "process", "kernels/s"]


def test_rows_are_sorted_filtered_and_looked_into() -> None:
    of = screen(launched(1, "gemm", 10, "small"), launched(2, "gemm", 90, "large"), launched(2, "softmax", 5, "large"))
    rows = [line.split()[1] for line in text(of)[3:5]]
    assert rows == ["large", "small"]

    of.press("r")
    assert [line.split()[1] for line in text(of)[3:5]] == ["small", "large"]
    of.press("down")
    of.press("enter")
    assert [line.split()[0] for line in text(of)[3:5]] == ["gemm", "softmax"]
    for key in "/SOFT":
        of.press(key)
    of.press("enter")
    assert [line.split()[0] for line in text(of)[3:5] if line] == ["softmax"]
    of.press("escape")
    of.press("escape")
    assert of.view.process is None
    of.press("q")
    assert of.view.is_over


def test_more_rows_than_lines_follow_the_chosen_one() -> None:
    of = screen(*(launched(1, f"kernel_{n:03}", 1000 - n) for n in range(200)))
    of.press("2")
    assert "kernel_000" in "\n".join(text(of, height=12))
    of.press("end")

    shown = "\n".join(text(of, height=12))

    assert "kernel_199" in shown
    assert "kernel_000" not in shown


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOC\x1b[6~", ["right", "page down"]),
        ("\x1b", ["escape"]),
        ("\x1b[1;5Aq", ["q"]),
        ("\x1b[<0;10;10Mq", ["q"]),
        ("\r\t\x7fä", ["enter", "tab", "delete", "ä"]),
        ("\x00\x01", []),
    ],
)
def test_keys_are_what_terminals_send(typed: str, keys: list[str]) -> None:
    assert list(_keys(typed)) == keys


@pytest.mark.parametrize(
    ("buckets", "share", "about"),
    [
        (Buckets(), 0.5, None),
        (Buckets({3: 1}, 12), 0.99, 12),
        (Buckets({0: 50, 10: 50}), 0.5, 2),
        (Buckets({0: 99, 10: 1}), 0.99, 2),
        (Buckets({0: 98, 10: 2}), 0.99, 2**10.5),
        (Buckets({}, 0, 10), 0.5, 0),
    ],
)
def test_quantiles_lie_in_the_bucket_that_holds_them(buckets: Buckets, share: float, about: float | None) -> None:
    assert quantile(buckets, share) == (about if about is None else pytest.approx(about))


@pytest.mark.parametrize(
    ("variables", "known"),
    [
        ({}, False),
        ({"LANG": "C"}, False),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "de_DE.utf8@euro"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
    ],
)
def test_what_a_terminal_knows_is_what_its_locale_says(variables: dict[str, str], known: bool) -> None:
    assert knows_utf8(variables) is known
