"""CPUs have the numbers that the kernel lists, whatever Python counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_gpu.runtime import online_cpus
from otel_gpu.runtime.online_cpus import parse


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0\n", [0]),
        ("0-1\n", [0, 1]),
        ("0-1,3,5-7\n", [0, 1, 3, 5, 6, 7]),
        ("1-3", [1, 2, 3]),
        ("0-239", list(range(240))),
        ("", []),
        ("\n", []),
        ("0-", []),
        ("-1", []),
        ("0,,1", []),
        ("all", []),
        ("٣", []),
        ("0-" + "9" * 30, []),
    ],
)
def test_a_list_of_the_kernel_is_read(text: str, numbers: list[int]) -> None:
    assert parse(text) == numbers


def test_a_list_without_end_is_bounded() -> None:
    assert len(parse("0-999999")) <= 1 << 17


def test_what_python_counts_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "online"
    listed.write_text("0,2-3\n")
    monkeypatch.setattr(online_cpus, "PATH", str(listed))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)

    assert online_cpus.online_cpus() == [0, 2, 3]
    listed.unlink()
    assert online_cpus.online_cpus() == [0]
