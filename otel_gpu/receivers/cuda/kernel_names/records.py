"""Which kernels are these handles, by the records that the program itself keeps of them?

A CUDA runtime must remember which handle the driver gave it for which stub, and keeps both in one record. A library that
asks the driver itself keeps handle and name in one. How a record is laid out is its maker's secret; that its records
are laid out alike is not, and it is tested: a distance between handle and stub, or handle and pointer to the name,
counts only where it gives the right name for several handles whose names are known otherwise, and a wrong one for none.

What stands in allocated memory may be left over from something else. A name that is told there must besides be one
whose stub the launching thread holds. Where all this does not leave one name, there is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from .resident_pages import AROUND, Places

NameOf = Callable[[int], str | None]

_MIN_CONFIRMED = 3
"""Kernels whose names are known otherwise, that a distance must have named before it is believed."""


def told_by_records(
    places: Places, told: Mapping[int, str], held: Mapping[int, frozenset[str] | None], name_of: NameOf
) -> dict[int, str]:
    """Return names of handles, from what stands around them.

    `told` are the names that are known otherwise; `held` has the handles that are looked for, each with the only names
    that it may have, or None where it may have any. `name_of` says which kernel a word means.
    """
    distances = _believed(places, told, name_of)
    names = {}
    for handle, possible in held.items():
        recorded = {name_of(place[at]) for place in places.get(handle, ()) for at in distances} - {None}
        agreed = recorded if possible is None else recorded & possible
        if len(agreed) == 1 and (name := agreed.pop()) is not None:
            names[handle] = name
    return names


def _believed(places: Places, told: Mapping[int, str], name_of: NameOf) -> list[int]:
    """Return the positions in a place at which it says which kernel its handle is."""
    confirmed: defaultdict[int, set[str]] = defaultdict(set)
    refuted = {AROUND}
    for handle, name in told.items():
        for place in places.get(handle, ()):
            for at, word in enumerate(place):
                recorded = name_of(word)
                if recorded == name:
                    confirmed[at].add(name)
                elif recorded is not None:
                    refuted.add(at)
    return [at for at, names in confirmed.items() if len(names) >= _MIN_CONFIRMED and at not in refuted]
