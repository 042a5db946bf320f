"""How are the values of Rust's constant generic arguments spelled in names?"""

from __future__ import annotations

from .itanium_cursor import NotMangled
from .rust_cursor import RustCursor
from .rust_tables import ESCAPES, SIGNED, UNSIGNED


class ConstantParser(RustCursor):
    """Reads constants; the paths in them are read by who knows paths."""

    def _path(self, *, in_value: bool) -> str:
        raise NotImplementedError

    def _constant(self, *, in_value: bool) -> str:
        """Read a constant; other than a literal, it stands in braces where a type could stand."""
        with self._level():
            tag = self._next()
            if tag == "p":
                return "_"
            if tag == "B":
                return self._back(lambda: self._constant(in_value=in_value))
            if tag in UNSIGNED or tag in SIGNED:
                sign = "-" if tag in SIGNED and self._take("n") else ""
                return sign + self._integer()
            if tag == "b":
                return self._choose({"0": "false", "1": "true"}, self._hex())
            if tag == "c":
                return f"'{_escaped(self._character(), quote=chr(39))}'"
            if tag == "R" and self._take("e"):
                return self._string()
            text = self._compound(tag)
            return self._bounded(text if in_value else f"{{{text}}}")

    def _compound(self, tag: str) -> str:
        match tag:
            case "e":
                return f"*{self._string()}"
            case "R" | "Q":
                return f"&{'mut ' if tag == 'Q' else ''}{self._constant(in_value=True)}"
            case "A":
                return f"[{', '.join(self._list(self._element))}]"
            case "T":
                return self._tuple(self._list(self._element))
            case "V":
                return self._value()
        raise NotMangled(self._text)

    def _value(self) -> str:
        """Read a value of a struct or an enum."""
        text = self._path(in_value=True)
        match self._next():
            case "U":
                return text
            case "T":
                return f"{text}({', '.join(self._list(self._element))})"
            case "S":
                return f"{text} {{ {', '.join(self._list(self._field))} }}"
        raise NotMangled(self._text)

    def _element(self) -> str:
        return self._constant(in_value=True)

    def _field(self) -> str:
        self._disambiguator()
        name = self._identifier()
        return f"{name}: {self._constant(in_value=True)}"

    def _tuple(self, elements: list[str]) -> str:
        return self._bounded(f"({', '.join(elements)}{',' if len(elements) == 1 else ''})")

    def _choose(self, words: dict[str, str], key: str) -> str:
        if key not in words:
            raise NotMangled(self._text)
        return words[key]

    def _hex(self) -> str:
        end = self._text.find("_", self._at)
        digits = self._text[self._at : end] if end >= 0 else "?"
        if digits.strip("0123456789abcdef"):
            raise NotMangled(self._text)
        self._at = end + 1
        return digits.lstrip("0") or "0"

    def _integer(self) -> str:
        digits = self._hex()
        return str(int(digits, 16)) if len(digits) <= 16 else f"0x{digits}"

    def _character(self) -> str:
        digits = self._hex()
        point = int(digits, 16) if len(digits) <= 6 else 1 << 32
        if point > 0x10FFFF or 0xD800 <= point < 0xE000:
            raise NotMangled(self._text)
        return chr(point)

    def _string(self) -> str:
        end = self._text.find("_", self._at)
        try:
            text = bytes.fromhex(self._text[self._at : end]).decode() if end >= self._at else None
        except ValueError:
            text = None
        if text is None:
            raise NotMangled(self._text)
        self._at = end + 1
        return f'"{_escaped(text, quote=chr(34))}"'


def _escaped(text: str, quote: str) -> str:
    return "".join(
        f"\\{c}" if c == quote else ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text
    )
