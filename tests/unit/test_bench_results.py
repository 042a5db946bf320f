from __future__ import annotations

import pytest

from bench.results import Result, shown, table, unmeasured
from bench.verbs import Slice, slowed, undisturbed


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.7, "aim"), (0.9, "ok"), (1.0, "ok"), (1.1, "MISSED"), (None, "not measured")]
)
def test_a_value_is_judged_by_upper_limits(value, verdict):
    assert Result("what", "", "", value, must=1.0, aim=0.7).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(13.0, "aim"), (8.0, "ok"), (7.9, "MISSED")])
def test_a_value_is_judged_by_lower_limits(value, verdict):
    assert Result("what", "", "", value, must=8, aim=13, at_least=True).verdict == verdict


def test_a_row_without_limits_only_informs():
    assert not Result("what", "", "", 1e9).verdict


def test_the_table_shows_limits_and_says_why_something_is_missing():
    text = table([Result("launch", "600 ns", "500 ns", 1.2, must=1.3, note="quiet"), unmeasured("export", "no SDK")])
    assert "| launch | 600 ns | 500 ns    | 1.2×  | ≤ 1.3× |     | ok           |" in text
    assert "| export |        |           |       |        |     | not measured |" in text
    assert text.endswith("- launch: quiet\n- export: no SDK")


def test_a_row_is_said_before_the_next_one_is_measured(capsys):
    def measured():
        yield Result("launch", "600 ns", "500 ns", 1.2, must=1.3)
        assert "launch: 600 ns / 500 ns = 1.2× (≤ 1.3×) ok" in capsys.readouterr().err
        yield unmeasured("export", "no SDK")

    assert [result.what for result in shown(measured())] == ["launch", "export"]


def test_a_loop_is_slowed_in_windows_and_evenly():
    alone = [Slice(100.0 + n % 3, 0.02) for n in range(40)]
    windows = [Slice(1.0, 0.02) if n in (7, 8) else one for n, one in enumerate(alone)]
    evenly = [Slice(one.rate / 4, one.spent_s) for one in alone]

    assert slowed(alone) == 0
    assert slowed(windows) == pytest.approx(2 / 40, rel=0.02)
    assert undisturbed(windows) == undisturbed(alone)
    # No slice stands out, but none is as fast as those of the loop that nobody looks at.
    assert slowed(evenly) == 0
    assert undisturbed(evenly) == undisturbed(alone) / 4
