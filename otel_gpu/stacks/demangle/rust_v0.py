"""How does Rust spell names since version 1.37 (`_R…`)? A parser with a budget of steps, depth and text.

Follows RFC 2603 and https://doc.rust-lang.org/rustc/symbol-mangling/v0.html. Writes what `nm -C` does: no hashes of
crates, no types of constants.
"""

from __future__ import annotations

from collections.abc import Callable

from .itanium_cursor import NotMangled
from .rust_constants import ConstantParser
from .rust_tables import BASIC_TYPES

__all__ = ["RustParser"]

_HASH = ".llvm."


class RustParser(ConstantParser):
    """Reads one mangled name; raises NotMangled."""

    def parse(self) -> str:
        """Return the source form of the whole name."""
        if not self._text.isascii() or not self._take("_R"):
            raise NotMangled(self._text)
        text = self._path(in_value=True)
        if self._peek().isupper():
            self._path(in_value=False)  # the crate that made this copy of a generic function
        rest = self._text[self._at :]
        if rest and rest[0] != ".":
            raise NotMangled(self._text)
        return text if rest.startswith(_HASH) else text + rest

    def _path(self, *, in_value: bool) -> str:
        with self._level():
            match self._next():
                case "C":
                    self._disambiguator()
                    return self._identifier()
                case "N":
                    return self._nested(in_value=in_value)
                case "M":
                    self._impl_path()
                    return self._bounded(f"<{self._type()}>")
                case "X":
                    self._impl_path()
                    return self._trait_impl()
                case "Y":
                    return self._trait_impl()
                case "I":
                    text = self._path(in_value=in_value)
                    arguments = ", ".join(self._list(self._generic_argument))
                    return self._bounded(f"{text}{'::' if in_value else ''}<{arguments}>")
                case "B":
                    return self._back(lambda: self._path(in_value=in_value))
        raise NotMangled(self._text)

    def _nested(self, *, in_value: bool) -> str:
        namespace = self._next()
        if not namespace.isalpha():
            raise NotMangled(self._text)
        text = self._path(in_value=in_value)
        number = self._disambiguator()
        name = self._identifier()
        if namespace.isupper():
            kind = {"C": "closure", "S": "shim"}.get(namespace, namespace)
            return self._bounded(f"{text}::{{{kind}{':' if name else ''}{name}#{number}}}")
        return self._bounded(f"{text}::{name}") if name else text

    def _impl_path(self) -> None:
        self._disambiguator()
        self._path(in_value=False)

    def _trait_impl(self) -> str:
        return self._bounded(f"<{self._type()} as {self._path(in_value=False)}>")

    def _generic_argument(self) -> str:
        if self._take("L"):
            return self._lifetime(self._base_62())
        if self._take("K"):
            return self._constant(in_value=False)
        return self._type()

    # Types

    def _type(self) -> str:
        with self._level():
            tag = self._next()
            if tag in BASIC_TYPES:
                return BASIC_TYPES[tag]
            match tag:
                case "R" | "Q":
                    lifetime = self._base_62() if self._take("L") else 0
                    named = f"{self._lifetime(lifetime)} " if lifetime else ""
                    return self._bounded(f"&{named}{'mut ' if tag == 'Q' else ''}{self._type()}")
                case "P" | "O":
                    return self._bounded(f"*{'const' if tag == 'P' else 'mut'} {self._type()}")
                case "A":
                    return self._bounded(f"[{self._type()}; {self._constant(in_value=True)}]")
                case "S":
                    return self._bounded(f"[{self._type()}]")
                case "T":
                    return self._tuple(self._list(self._type))
                case "F":
                    return self._in_binder(self._function)
                case "D":
                    return self._dyn()
                case "W":
                    return self._bounded(f"{self._type()} is {self._pattern()}")
                case "B":
                    return self._back(self._type)
            self._at -= 1
            return self._path(in_value=False)

    def _function(self) -> str:
        words = "unsafe " if self._take("U") else ""
        if self._take("K"):
            abi = "C" if self._take("C") else self._identifier().replace("_", "-")
            words += f'extern "{abi}" '
        text = f"{words}fn({', '.join(self._list(self._type))})"
        return self._bounded(text if self._take("u") else f"{text} -> {self._type()}")

    def _dyn(self) -> str:
        text = self._in_binder(lambda: " + ".join(self._list(self._dyn_trait)))
        self._need("L")
        lifetime = self._base_62()
        return self._bounded(f"dyn {text}{f' + {self._lifetime(lifetime)}' if lifetime else ''}")

    def _dyn_trait(self) -> str:
        text, arguments = self._open_path()
        while self._take("p"):
            name = self._identifier()
            arguments.append(f"{name} = {self._type()}")
        return self._bounded(f"{text}<{', '.join(arguments)}>" if arguments else text)

    def _open_path(self) -> tuple[str, list[str]]:
        """Read a path, its generic arguments apart: what is bound by name stands in the same brackets."""
        with self._level():
            if self._take("B"):
                return self._back(self._open_path)
            if self._take("I"):
                return self._path(in_value=False), self._list(self._generic_argument)
            return self._path(in_value=False), []

    def _pattern(self) -> str:
        with self._level():
            match self._next():
                case "R":
                    return self._bounded(f"{self._constant(in_value=False)}..={self._constant(in_value=False)}")
                case "O":
                    return self._bounded(" | ".join(self._list(self._pattern)))
                case "N":
                    return "!null"
        raise NotMangled(self._text)

    def _in_binder(self, read: Callable[[], str]) -> str:
        """Read what may have lifetimes of its own: `for<'a>`."""
        number = self._base_62() + 1 if self._take("G") else 0
        outer = self._lifetimes
        if number > len(self._text):
            # Each would have to be used to be worth a name.
            raise NotMangled(self._text)
        self._lifetimes += number
        names = ", ".join(self._lifetime(n) for n in range(number, 0, -1))
        text = read()
        self._lifetimes = outer
        return self._bounded(f"for<{names}> {text}" if number else text)

    def _lifetime(self, index: int) -> str:
        if not index:
            return "'_"
        depth = self._lifetimes - index
        if depth < 0:
            raise NotMangled(self._text)
        return f"'{chr(ord('a') + depth)}" if depth < 26 else f"'_{depth}"
