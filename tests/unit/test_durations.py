from __future__ import annotations

import pytest

from otel_gpu.cli.durations import duration, seconds
from otel_gpu.errors import ConfigError


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("5s", 5.0), ("0.5", 0.5), ("500ms", 0.5), ("1m30s", 90.0)])
def test_a_time_is_the_same_with_a_unit_and_without(text: str, value: float) -> None:
    assert (seconds(text), duration(text)) == (value, value)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-1", "-1s", "5 s", "5days", "1e999", "9" * 400])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time; give seconds"):
        seconds(text)
    with pytest.raises(ConfigError, match=r"--duration .*is no time"):
        duration(text)


def test_no_time_at_all_is_none_to_run_for() -> None:
    assert seconds("0") == 0.0
    with pytest.raises(ConfigError, match="--duration 0 is no time; leave it out"):
        duration("0")
