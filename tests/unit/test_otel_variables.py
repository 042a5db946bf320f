from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import opentelemetry.sdk.environment_variables as of_sdk

from otel_gpu.config.model import Config
from otel_gpu.config.otel_variables import VARIABLES, render


class _Asked(Mapping[str, str]):
    """Variables that are not set but for one, and notes which are asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        if name == "OTEL_METRICS_EXPORTER":
            return "otlp,prometheus"
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_the_document_is_the_table() -> None:
    assert (Path(__file__).parents[2] / "docs" / "variables.md").read_text() == render()


def test_no_variable_stands_there_twice() -> None:
    names = [name for one in VARIABLES for name in one.names]

    assert len(names) == len(set(names))


def test_every_variable_of_the_sdk_stands_there() -> None:
    known = {name for one in VARIABLES for name in one.names}
    own = ("OTEL_PYTHON_", "OTEL_EXPERIMENTAL_")

    assert {n for n in dir(of_sdk) if n.startswith("OTEL_") and not n.startswith(own)} - known == set()


def test_those_that_are_honoured_are_read_and_no_others() -> None:
    asked = _Asked()

    Config.load(environ=asked, traces=True, profiles=True)

    honoured = {name for one in VARIABLES if one.is_honoured for name in one.names}
    without = {one.name for one in VARIABLES if not one.is_honoured}
    assert honoured - asked.names == set()
    assert asked.names - honoured == without
