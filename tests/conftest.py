"""Which tests can run here? Those marked `root` skip without root, saying so."""

from __future__ import annotations

import os

import pytest


# Last, so that marks which the conftests below add are seen.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root, to load BPF programs and attach uprobes")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)
