"""Root and a kernel with uprobes, which the zoo needs, and a table of what it showed at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo.table import ROWS, rendered

pytest.register_assert_rewrite("tests.e2e.comparison")

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.root)
            item.add_marker(pytest.mark.zoo)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("zoo, for docs/validation.md")
        terminalreporter.write_line(rendered())
