"""How far has a mangled name been read, and how much of its budget is left?"""

from __future__ import annotations

from typing import NamedTuple

MAX_STEPS = 20_000
MAX_DEPTH = 128
MAX_TEXT = 64 << 10


class NotMangled(ValueError):
    """The text is no mangled name, or needs more than the budget."""


def is_digit(character: str) -> bool:
    """Say whether a character is one of 0 to 9; names may hold other alphabets' digits, which are letters here."""
    return character.isascii() and character.isdigit()


class Type(NamedTuple):
    """A type's text before and after what it declares: `int (*` and `)(float)`. `shape` is f, a or nothing."""

    left: str
    right: str = ""
    shape: str = ""
    pack: tuple[Type, ...] | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.pack)) if self.pack is not None else self.left + self.right

    def wrapped(self, mark: str) -> Type:
        """Return a pointer or reference to this type."""
        if mark == "&" and self.left.endswith("&") and not self.shape:
            return self if not self.left.endswith("&&") else Type(self.left[:-1], self.right)
        if mark == "&&" and self.left.endswith("&") and not self.shape:
            return self
        if self.shape:
            space = "" if self.left.endswith(" ") else " "
            return Type(f"{self.left}{space}({mark}", f"){' ' if self.shape == 'a' else ''}{self.right}")
        return Type(self.left + mark, self.right)

    def qualified(self, qualifiers: str) -> Type:
        """Return this type with ` const` and the like."""
        if self.pack is not None:
            return Type("", "", "", tuple(t.qualified(qualifiers) for t in self.pack))
        if self.shape == "f":
            return self._replace(right=self.right + qualifiers)
        if self.shape == "a":
            return self._replace(left=f"{self.left.rstrip()}{qualifiers} ")
        return self._replace(left=self.left + qualifiers)


class Name(NamedTuple):
    """A parsed name: the text; whether its last part has template arguments; whether it declares no return type."""

    text: str
    is_template: bool = False
    has_no_return: bool = False
    qualifiers: str = ""


class Cursor:
    """Reads the small parts of a mangled name, and counts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._steps = 0
        self._depth = 0

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _take(self, wanted: str) -> bool:
        if self._text.startswith(wanted, self._at):
            self._at += len(wanted)
            return True
        return False

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise NotMangled(self._text)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth > MAX_DEPTH:
            raise NotMangled(self._text)

    def _bounded(self, text: str) -> str:
        # Every text that is put together passes here, so doubling ends at the limit.
        if len(text) > MAX_TEXT:
            raise NotMangled(self._text)
        return text

    def _digits(self) -> int:
        start = self._at
        while is_digit(self._peek()) and self._at - start < 9:
            self._at += 1
        if start == self._at:
            raise NotMangled(self._text)
        return int(self._text[start : self._at])

    def _number(self) -> str:
        negative = self._take("n")
        start = self._at
        while is_digit(self._peek()):
            self._at += 1
        if start == self._at:
            raise NotMangled(self._text)
        return ("-" if negative else "") + self._text[start : self._at]

    def _sequence_id(self) -> int:
        """Read `_` as 0, `0_` as 1 and so on, in base 36."""
        if self._take("_"):
            return 0
        end = self._text.find("_", self._at, self._at + 6)
        digits = self._text[self._at : end] if end > 0 else ""
        if not digits.isalnum() or not digits.isascii():
            raise NotMangled(self._text)
        self._at = end + 1
        return int(digits, 36) + 1

    def _qualifiers(self) -> str:
        text = ""
        for code, word in (("r", " restrict"), ("V", " volatile"), ("K", " const")):
            if self._take(code):
                text = word + text
        return text

    def _discriminator(self) -> None:
        if self._take("__"):
            self._digits()
            self._need("_")
        elif self._peek() == "_" and is_digit(self._text[self._at + 1 : self._at + 2]):
            self._at += 2

    def _closure_number(self) -> int:
        number = 1 if self._peek() == "_" else self._digits() + 2
        self._need("_")
        return number
