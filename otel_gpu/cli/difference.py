"""How is it told how two recordings differ? A file of the difference, and what changed the most."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError
from ..exporters.recordings.call_sites import Change, top_changes
from ..exporters.recordings.comparison import comparable
from ..exporters.recordings.files import check_difference, encode_difference
from ..exporters.recordings.output import Output
from ..exporters.recordings.reading import read_profiles
from ..runtime.trusted_paths import Owner
from ..signals.profiles import Profile, ProfileType, counterparts
from ..signals.structs import Frozen
from ..text import escaped

_MAX_LINE = 2_000
_RECORDED = "what was recorded now"


class Comparison(Frozen):
    """What was before, what is after, and where their difference goes."""

    before: Sequence[Profile]
    after: Sequence[Profile] | None
    """None for what is still to be recorded."""
    names: tuple[str, str]
    output: Output

    @classmethod
    def asked(cls, paths: Sequence[str], type_of_folded: ProfileType, output: Output) -> Comparison:
        """Return what one or two files ask for; ConfigError where they cannot be compared, or the difference not be written."""
        if len(paths) > 2:
            raise ConfigError(
                f"--diff compares two recordings, and these are {len(paths)}: name two, or one and a process"
            )
        output.check(())
        check_difference(output.suffix)
        read = [_read(path, type_of_folded) for path in paths]
        if len(read) == 1:
            return cls(read[0], None, (paths[0], _RECORDED), output)
        return cls(read[0], read[1], (paths[0], paths[1]), output)

    @property
    def owner(self) -> Owner | None:
        """The user to whom the file is given."""
        return self.output.owner

    @property
    def places(self) -> tuple[str, ...]:
        """What has to be written to."""
        return self.output.places

    def write(self, after: Sequence[Profile]) -> None:
        """Write the difference, and say what changed the most; ConfigError where there is nothing to compare."""
        common = {p.type.name for p in self.before} & {p.type.name for p in after}
        if not common:
            types = [", ".join(dict.fromkeys(p.type.title for p in profiles)) for profiles in (self.before, after)]
            raise ConfigError(
                "{0} ({2}) and {1} ({3}) have no type in common".format(*self.names, *types) + "; record both alike"
            )
        data = encode_difference(self.before, after, self.output.suffix)
        where = self.output.put(data)
        if where:
            changed = f"what changed from {self.names[0]} to {self.names[1]}"
            print(escaped(f"wrote {where}: {changed}", _MAX_LINE), file=sys.stderr)
        self._tell_types_apart(common, after)
        for old, new in counterparts(*comparable(self.before, after)):
            present = new or old
            if present is not None and present.type.name in common:
                _tell(old, new, present.type)

    def _tell_types_apart(self, common: set[str], after: Sequence[Profile]) -> None:
        for name, profiles in zip(self.names, (self.before, after)):
            alone = dict.fromkeys(p.type.title.lower() for p in profiles if p.type.name not in common)
            if alone:
                print(escaped(f"only in {name}: {', '.join(alone)}", _MAX_LINE), file=sys.stderr)


def _read(path: str, type_of_folded: ProfileType) -> list[Profile]:
    profiles = read_profiles(Path(path), type_of_folded)
    if not profiles:
        raise ConfigError(f"{path} holds no profile; give a file that otel-gpu record wrote")
    return profiles


def _tell(old: Profile | None, new: Profile | None, kind: ProfileType) -> None:
    changes = top_changes(old, new)
    unit = f"{kind.unit}/s, since one recording took longer" if changes.per_second else kind.unit
    print(f"{kind.title.lower()}, {_values(changes.total)} {unit}:", file=sys.stderr)
    for change in changes.sites:
        print(f"  {_change(change):>8}  {escaped(change.name)}: {_values(change)}", file=sys.stderr)


def _values(change: Change) -> str:
    return f"{_number(change.before)} -> {_number(change.after)}"


def _change(change: Change) -> str:
    if not change.before:
        return "new"
    return "gone" if not change.after else f"{change.grown / change.before:+.1%}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.3g}"
