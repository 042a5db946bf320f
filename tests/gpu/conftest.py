"""Can these checks run here? They attach probes to a real driver: root and a GPU, or they skip and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.hardware import Gpu, look

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.root)
            if isinstance(found := look(), str):
                item.add_marker(pytest.mark.skip(reason=found))


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    found = look()
    assert isinstance(found, Gpu)
    print(found)
    return found
