"""The limit of memory is found wherever a control group says it, and tables fit into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gpu.runtime.memory_limit import SMALLEST, limit_bytes, table_share

_MB = 1_000_000
_V1 = "36 30 0:31 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
_V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def _host(root: Path, group: str, mounts: str, limits: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    (root / "proc/self/mountinfo").write_text(mounts)
    for file, text in limits.items():
        path = root / "sys/fs/cgroup" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    "group, mounts, limits, expected",
    [
        ("0::/a/b\n", _V2, {"a/b/memory.max": "max", "a/memory.max": f"{300 * _MB}"}, 300 * _MB),
        ("0::/a/b\n", _V2, {"a/b/memory.max": f"{200 * _MB}", "a/memory.max": f"{300 * _MB}"}, 200 * _MB),
        ("0::/a\n", _V2, {"a/memory.max": "max"}, None),
        ("4:memory:/a\n0::/\n", _V1, {"memory/a/memory.limit_in_bytes": f"{150 * _MB}"}, 150 * _MB),
        ("4:memory:/a\n", _V1, {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, None),
        # In a container that sees its own part of the tree only: the mount's root is the container's group.
        (
            "4:memory:/docker/x\n",
            _V1.replace(" / /sys", " /docker/x /sys"),
            {"memory/memory.limit_in_bytes": f"{99 * _MB}"},
            99 * _MB,
        ),
        ("4:memory:/else\n", _V1.replace(" / /sys", " /docker/x /sys"), {}, None),
        ("", "", {}, None),
        ("what\nis:this\n", "no mounts\n - \n1 2 - cgroup2\n", {}, None),
    ],
)
def test_the_lowest_limit_above_a_process_is_found(
    group: str, mounts: str, limits: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    assert limit_bytes(_host(tmp_path, group, mounts, limits)) == expected


@pytest.mark.parametrize(
    "limit_mb, profiles, expected, says",
    [
        (None, False, 1.0, ""),
        (300, False, 1.0, ""),
        (200, False, 0.5, "tables have 1/2 of their usual size"),
        (150, False, 0.125, "tables have 1/8"),
        (100, False, SMALLEST, "the kernel may end it"),
        (500, True, 1.0, ""),
        (300, True, 0.25, "tables have 1/4"),
    ],
)
def test_tables_fit_into_the_limit(
    limit_mb: int | None,
    profiles: bool,
    expected: float,
    says: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = "max" if limit_mb is None else str(limit_mb * _MB)
    root = _host(tmp_path, "0::/a\n", _V2, {"a/memory.max": limit})

    assert table_share(profiles=profiles, root=root) == expected
    assert bool(caplog.text) == bool(says)
    assert says in caplog.text
