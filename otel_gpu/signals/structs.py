"""The bases of data classes: structs of msgspec, which `dataclasses.replace`, `fields`, `asdict` and `is_dataclass` take too.

Python makes a dataclass in a millisecond, for it compiles each method. A start makes some two hundred; a struct takes a fortieth.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> object:
        return lambda kind: kind


class _Fields:
    """The fields of a struct as those of a dataclass, made when they are asked for."""

    def __init__(self) -> None:
        self._made: dict[type, dict[str, dataclasses.Field[Any]]] = {}

    def __get__(self, _instance: object, kind: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
        if kind not in self._made:
            model = dataclasses.make_dataclass(kind.__name__, kind.__struct_fields__)
            self._made[kind] = {f.name: f for f in dataclasses.fields(model)}
        return self._made[kind]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(Struct, frozen=True):
    """A value that never changes, equal to another of its class if all fields are equal."""

    __dataclass_fields__ = _Fields()


class Record(Struct):
    """The same, of which the fields can be set."""

    __dataclass_fields__ = _Fields()


__all__ = ["Frozen", "Record"]
