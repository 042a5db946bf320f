"""What can be set of the processor of resources?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from ...errors import ConfigError
from ...signals.observed import is_observed


@dataclass(frozen=True, slots=True)
class AttributeAction:
    """One of `processors.resource.attributes`, as in the Collector's resource processor."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    """Which attribute."""
    action: Literal["insert", "update", "upsert", "delete"]
    """`insert` where there is no such attribute, `update` where there is one, `upsert` in both cases."""
    value: str | int | float | bool | None = None
    """What it becomes."""
    from_attribute: str | None = None
    """The attribute whose value is taken; without it, nothing is done."""

    def __post_init__(self) -> None:
        given = (self.value is not None) + (self.from_attribute is not None)
        if self.action == "delete" and given:
            raise ConfigError(f"{self.key} is deleted, and gets no value; leave value and from_attribute out")
        if self.action != "delete" and given != 1:
            raise ConfigError(f"{self.key} needs one value; give either value or from_attribute")
        source = self.from_attribute
        if source is not None and is_observed(self.key) and not is_observed(source):
            raise ConfigError(
                f"{self.key} is observed, and {source} is what a process may say of itself; write a value, or take another key"
            )


@dataclass(frozen=True, slots=True)
class ResourceSettings:
    """Attributes of resources, inserted, updated or deleted."""

    attributes: Annotated[tuple[AttributeAction, ...], msgspec.Meta(min_length=1)]
    """What is done, in this order."""
