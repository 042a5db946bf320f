from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from otel_gpu.components import registry
from otel_gpu.config.reference import keys, render
from otel_gpu.config.schema import PipelineSection, ServiceSection
from otel_gpu.config.settings import EXTENSIONS, Discovery

SECTIONS = {
    **{
        f"{kind}.{name}": registry.find(kind, name).settings
        for kind in registry.DEFAULTS
        for name in registry.own(kind)
    },
    **{f"extensions.{name}": settings for name, settings in EXTENSIONS.items()},
    "discovery": Discovery,
    "service": ServiceSection,
    "pipelines": PipelineSection,
}


@dataclass(frozen=True)
class Wheel:
    """One of them."""

    spokes: Annotated[int, msgspec.Meta(ge=3, le=9)]
    """How many."""


@dataclass(frozen=True)
class Cart:
    """Something with wheels."""

    wheels: tuple[Wheel, ...] = ()
    """All of them,
    the left ones first | second."""
    colour: Literal["red", "blue"] | None = None
    made_of: dict[str, str] = field(default_factory=dict)
    quick: bool = False


def test_the_document_says_what_the_schema_says() -> None:
    stored = (Path(__file__).parents[2] / "docs" / "configuration-reference.md").read_text()

    assert stored == render(), "run `make docs` and commit docs/configuration-reference.md"


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_every_key_says_what_it_is_for(section: str) -> None:
    silent = [key.path for key in keys(SECTIONS[section]) if not key.description.endswith(".")]

    assert not silent, f"write below the field what it is for: {silent}"


def test_a_key_has_its_type_its_default_and_what_is_written_below_it() -> None:
    rows = {key.path: key for key in keys(Cart)}

    assert list(rows) == ["wheels", "wheels[].spokes", "colour", "made_of", "quick"]
    assert rows["wheels"].description == "All of them, the left ones first \\| second."
    assert (rows["wheels[].spokes"].type, rows["wheels[].spokes"].default) == ("whole number, 3 to 9", "must be there")
    assert (rows["colour"].type, rows["colour"].default) == ("`red`, `blue`", "")
    assert (rows["made_of"].type, rows["made_of"].default) == ("keys and values", "`{}`")
    assert (rows["quick"].type, rows["quick"].default) == ("true or false", "`false`")
