"""Everything end to end attaches probes: root and a kernel with uprobes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.e2e.comparison")

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.root)
