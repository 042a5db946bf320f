"""Frozen values and records are equal, hashed, copied and replaced as dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.spans import Link, Span, SpanContext
from otel_gpu.signals.structs import Frozen, Record

CONTEXT = SpanContext(b"t" * 16, b"s" * 8)
SPAN = Span(Resource(()), "climb", CONTEXT, 1, 2, links=(Link(CONTEXT),))


def test_a_span_is_replaced_as_a_dataclass_is() -> None:
    assert dataclasses.replace(SPAN, name="CLIMB") == Span(Resource(()), "CLIMB", CONTEXT, 1, 2, links=(Link(CONTEXT),))
    assert dataclasses.replace(CONTEXT, flags=0).flags == 0
    with pytest.raises(ValueError, match="before it begins"):
        dataclasses.replace(SPAN, end_ns=0)
    with pytest.raises(TypeError):
        dataclasses.replace(SPAN, colour="red")


def test_its_fields_are_those_of_a_dataclass() -> None:
    assert dataclasses.is_dataclass(SPAN)
    assert [field.name for field in dataclasses.fields(SPAN)][:3] == ["resource", "name", "context"]
    assert dataclasses.asdict(CONTEXT) == {"trace_id": b"t" * 16, "span_id": b"s" * 8, "trace_state": "", "flags": 1}


def test_it_is_copied_and_cannot_be_changed() -> None:
    assert pickle.loads(pickle.dumps(SPAN)) == copy.deepcopy(SPAN) == SPAN
    with pytest.raises(AttributeError):
        SPAN.name = "fall"  # type: ignore[misc]


class Place(Frozen):
    x: int
    y: int = 0


class Walk(Record):
    at: Place
    steps: int = 0


def test_a_value_is_known_by_its_fields() -> None:
    assert {Place(1): "here"}[Place(1, 0)] == "here"
    assert Place(1) != Place(2)
    with pytest.raises(AttributeError):
        Place(1).x = 2  # type: ignore[misc]


def test_a_record_changes_and_is_not_hashed() -> None:
    walk = Walk(Place(1))
    walk.steps += 1

    assert dataclasses.replace(walk, at=Place(2)) == Walk(Place(2), 1)
    assert dataclasses.asdict(walk) == {"at": {"x": 1, "y": 0}, "steps": 1}
    with pytest.raises(TypeError):
        hash(walk)
