"""Where does a recording go? Into a file, into one for each type where the format holds but one, or to the standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from ...errors import ConfigError
from ...runtime.trusted_paths import Owner
from ...signals.profiles import Profile, ProfileType, merge
from ...signals.structs import Frozen
from .files import check_output, check_suffix, encode, holds_types, replace_with

FORMATS = {
    "html": ".html",
    "svg": ".svg",
    "pprof": ".pb.gz",
    "folded": ".folded",
    "speedscope": ".json",
    "otlp": ".otlp.json",
}
"""The formats by name, and the suffix of each."""
_BINARY = frozenset({".pb.gz"})
STANDARD_OUTPUT = "-"


def in_order(types: Sequence[ProfileType]) -> Callable[[Profile], int]:
    """Return the key that sorts profiles as these types are; by name, for a type may have been recorded with another period."""
    places = {kind.name: place for place, kind in enumerate(types)}
    return lambda profile: places.get(profile.type.name, len(places))


class Output(Frozen):
    """A place and a format."""

    name: str
    """Of the file; STANDARD_OUTPUT for none."""
    suffix: str
    """Which says the format."""
    lines: bool = False
    """Of folded stacks: each frame has its file and line."""
    owner: Owner | None = None
    """The user to whom files are given; None where they stay this process's."""

    @classmethod
    def asked(cls, name: str, format: str | None = None, *, lines: bool = False, owner: Owner | None = None) -> Output:
        """Return the place of this name; its suffix says the format, unless one is given. ConfigError where neither does.

        The standard output is given folded stacks where nothing is said.
        """
        suffix = FORMATS.get(format or "") or (".folded" if name == STANDARD_OUTPUT else check_suffix(name))
        if lines and suffix != ".folded":
            raise ConfigError("--lines is about folded stacks: leave it out, or write to a file that ends in .folded")
        return cls(name, suffix, lines, owner)

    @property
    def places(self) -> tuple[str, ...]:
        """What has to be written to: the file, and where it lies."""
        return () if self.name == STANDARD_OUTPUT else (self.name, os.path.dirname(self.name) or ".")

    def check(self, types: Sequence[ProfileType]) -> None:
        """Raise ConfigError now, not after a recording of an hour, where profiles of these types cannot go there."""
        if self.name != STANDARD_OUTPUT:
            check_output(self.name)
        elif len(types) > 1 and not holds_types(self.suffix):
            asked = ", ".join(t.title for t in types)
            raise ConfigError(
                f"folded stacks hold one type, and these are {len(types)} ({asked}): record one, or write to a file"
            )
        elif self.suffix in _BINARY and sys.stdout.isatty():
            raise ConfigError(
                "pprof is no text for a terminal: write it to a file or a pipe, or choose another --format"
            )

    def write(
        self, profiles: Sequence[Profile], order: Sequence[ProfileType]
    ) -> list[tuple[str, tuple[ProfileType, ...]]]:
        """Write profiles, of types in this order; return the files there are now, and the types in each.

        OtelGpuError where that cannot be.
        """
        merged = sorted(merge(profiles), key=in_order(order))
        types = tuple(dict.fromkeys(p.type for p in merged))
        if self.name == STANDARD_OUTPUT:
            self.put(self._encode(merged))
            return []
        if holds_types(self.suffix) or len(types) < 2:
            self.put(self._encode(merged))
            return [(self.name, types)]
        written: list[tuple[str, tuple[ProfileType, ...]]] = []
        for kind in types:
            name = self._name_for(kind, is_first=not written)
            replace_with(name, self._encode([p for p in merged if p.type == kind]), self.owner)
            written.append((name, (kind,)))
        return written

    def put(self, data: bytes) -> str:
        """Write a file, or to the standard output; return the file's name. OtelGpuError where that cannot be."""
        if self.name != STANDARD_OUTPUT:
            replace_with(self.name, data, self.owner)
            return self.name
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return ""

    def _encode(self, profiles: Sequence[Profile]) -> bytes:
        return encode(profiles, self.suffix, lines=self.lines)

    def _name_for(self, kind: ProfileType, *, is_first: bool) -> str:
        """Return the name of the file for one type: the first has the one that was asked for."""
        if is_first:
            return self.name
        directory, name = os.path.split(self.name)
        return os.path.join(directory, f"{name.removesuffix(self.suffix)}.{kind.name}{self.suffix}")
