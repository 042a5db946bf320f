"""How are the small parts of Rust's mangled names read: numbers, identifiers, references back?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from .itanium_cursor import MAX_TEXT, Cursor, NotMangled

_T = TypeVar("_T")
_START = 2
"""References back count from behind `_R`."""
_DIGITS_62 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MAX_PUNYCODE = 256
# RFC 3492, section 5.
_BASE, _T_MIN, _T_MAX, _SKEW, _DAMP, _BIAS, _FIRST = 36, 1, 26, 38, 700, 72, 0x80


class RustCursor(Cursor):
    """Reads the parts that have no parts."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._lifetimes = 0
        """How many lifetimes are bound here."""

    @contextmanager
    def _level(self) -> Iterator[None]:
        self._depth += 1
        self._step()
        yield
        self._depth -= 1

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise NotMangled(self._text)
        self._at += 1
        return found

    def _list(self, read: Callable[[], str]) -> list[str]:
        found: list[str] = []
        size = 0
        while not self._take("E"):
            self._step()
            found.append(read())
            size += len(found[-1])
            if size > MAX_TEXT:
                raise NotMangled(self._text)
        return found

    def _base_62(self) -> int:
        """Read `_` as 0, `0_` as 1 and so on."""
        if self._take("_"):
            return 0
        value = 0
        while not self._take("_"):
            digit = _DIGITS_62.find(self._next())
            value = value * 62 + digit
            if digit < 0 or value >= 1 << 64:
                raise NotMangled(self._text)
        return value + 1

    def _disambiguator(self) -> int:
        return self._base_62() + 1 if self._take("s") else 0

    def _identifier(self) -> str:
        is_punycode = self._take("u")
        size = 0 if self._take("0") else self._digits()
        self._take("_")
        text = self._text[self._at : self._at + size]
        if len(text) < size:
            raise NotMangled(self._text)
        self._at += size
        return self._unpacked(text) if is_punycode else text

    def _unpacked(self, text: str) -> str:
        """Decode Punycode, whose delimiter is `_` here."""
        plain, _, coded = text.rpartition("_")
        letters = list(plain)
        if not coded or len(text) > _MAX_PUNYCODE:
            raise NotMangled(self._text)
        point, bias, index, at = _FIRST, _BIAS, 0, 0
        while at < len(coded):
            before, weight, k = index, 1, 0
            while True:
                k += _BASE
                digit = "abcdefghijklmnopqrstuvwxyz0123456789".find(coded[at : at + 1] or "?")
                at += 1
                if digit < 0:
                    raise NotMangled(self._text)
                index += digit * weight
                threshold = min(max(k - bias, _T_MIN), _T_MAX)
                if digit < threshold:
                    break
                weight *= _BASE - threshold
            size = len(letters) + 1
            bias = _adapted(index - before, size, is_first=before == 0)
            point += index // size
            index %= size
            if point > 0x10FFFF or 0xD800 <= point < 0xE000:
                raise NotMangled(self._text)
            letters.insert(index, chr(point))
            index += 1
        return "".join(letters)

    def _back(self, read: Callable[[], _T]) -> _T:
        """Read what stood further ahead once more."""
        at = self._at - 1
        target = self._base_62() + _START
        if target >= at:
            raise NotMangled(self._text)
        here, self._at = self._at, target
        found = read()
        self._at = here
        return found


def _adapted(delta: int, size: int, *, is_first: bool) -> int:
    delta = delta // _DAMP if is_first else delta // 2
    delta += delta // size
    k = 0
    while delta > (_BASE - _T_MIN) * _T_MAX // 2:
        delta //= _BASE - _T_MIN
        k += _BASE
    return k + (_BASE - _T_MIN + 1) * delta // (delta + _SKEW)
