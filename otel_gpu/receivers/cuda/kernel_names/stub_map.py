"""The kernels of one file by stub and by handle, packed, and the text of a kernel's name."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence

from ....signals.structs import Frozen

MAX_KERNELS = 1_000_000
MAX_NAME = 4_096
_WORD = 8
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


class StubMap(Frozen):
    """The kernels of one file by link-time address. A library has 20,000, so numbers are packed, in 64 bits each."""

    names: tuple[str, ...] = ()
    """The kernels, in the order of their stubs."""
    packed_stubs: bytes = b""
    packed_handles: bytes = b""
    """The variables that hold handles, sorted, and then as many stubs: those whose kernels' handles they hold."""
    packed_users: bytes = b""
    """Where the functions begin that mention stubs, sorted, one entry for each mention; where they end; the stubs."""
    skipped: int = 0
    """Registrations that were not understood or were beyond a limit, and functions that could not be read."""

    @classmethod
    def of(
        cls,
        names: Mapping[int, str],
        handles: Sequence[Collection[int]] = ((), ()),
        users: Sequence[Collection[int]] = ((), (), ()),
        skipped: int = 0,
    ) -> StubMap:
        """Make a map of names by stub, and of the columns above."""
        stubs = sorted(names)
        return cls(tuple(names[stub] for stub in stubs), _packed(stubs), _packed(*handles), _packed(*users), skipped)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def stubs(self) -> memoryview:
        """The host functions that stand for kernels, sorted."""
        return _unpacked(self.packed_stubs)

    @property
    def handle_variables(self) -> memoryview:
        """The variables that hold kernels' handles, sorted."""
        return _unpacked(self.packed_handles)[: len(self.packed_handles) // (2 * _WORD)]

    def is_sound(self) -> bool:
        """Say whether the columns fit together, as those of a map do that was made here."""
        import numpy as np

        stubs, handles, users = (len(packed) for packed in (self.packed_stubs, self.packed_handles, self.packed_users))
        if stubs != _WORD * len(self.names) or handles % (2 * _WORD) or users % (3 * _WORD):
            return False
        columns = self.stubs, self.handle_variables, _unpacked(self.packed_users)[: users // (3 * _WORD)]
        return all(bool((np.diff(np.asarray(column)) >= 0).all()) for column in columns)

    @property
    def size_bytes(self) -> int:
        """How much memory it takes, about."""
        packed = len(self.packed_stubs) + len(self.packed_handles) + len(self.packed_users)
        return packed + sum(map(sys.getsizeof, self.names))

    def name_of(self, stub: int) -> str | None:
        """Return the kernel name that the stub at this link-time address was registered with."""
        stubs = self.stubs
        at = bisect_left(stubs, stub)
        return self.names[at] if at < len(stubs) and stubs[at] == stub else None

    def handle_name(self, at: int) -> str | None:
        """Return the kernel whose handle a process has in the handle variable of that index."""
        columns = _unpacked(self.packed_handles)
        return self.name_of(columns[len(columns) // 2 + at])

    def names_used_at(self, return_address: int) -> frozenset[str]:
        """Return the kernels whose stubs the function around a call mentions: with exactly one, that was launched."""
        # The call may be the function's last instruction: the address behind it belongs to the next one.
        address = return_address - 1
        columns = _unpacked(self.packed_users)
        count = len(columns) // 3
        starts, ends, stubs = columns[:count], columns[count : 2 * count], columns[2 * count :]
        last = bisect_right(starts, address)
        if last == 0:
            return frozenset()
        first = bisect_left(starts, starts[last - 1])
        found = (self.name_of(stubs[at]) for at in range(first, last) if address < ends[at])
        return frozenset(name for name in found if name is not None)


def clean_name(raw: bytes) -> str:
    """Return a kernel name as text that is safe to print and to send: escaped, and cut where it is absurdly long."""
    text = raw[:MAX_NAME].decode("latin-1")
    if not (text.isascii() and text.isprintable()):
        text = _UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode(), text)
    return text if len(raw) <= MAX_NAME and len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


def _packed(*columns: Collection[int]) -> bytes:
    import numpy as np

    return b"".join(np.asarray(column, np.int64).tobytes() for column in columns)


def _unpacked(packed: bytes) -> memoryview:
    return memoryview(packed).cast("q")
