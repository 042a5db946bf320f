"""How does the Itanium C++ ABI spell expressions, literals and the names within them?"""

from __future__ import annotations

from abc import abstractmethod

from .itanium_cursor import Cursor, NotMangled, Type, is_digit
from .itanium_tables import BINARY_OPERATORS, INTEGER_SUFFIXES, OPERATOR_NAMES, UNARY_OPERATORS


class ExpressionParser(Cursor):
    """The part of the parser that reads expressions; names and types are read by its subclass."""

    @abstractmethod
    def _encoding(self) -> str: ...

    @abstractmethod
    def _type(self) -> Type: ...

    @abstractmethod
    def _template_parameter(self) -> Type: ...

    @abstractmethod
    def _template_args(self, *, tag: bool) -> str: ...

    def _size(self) -> str:
        return str(self._digits()) if is_digit(self._peek()) else self._expression()

    def _source_name(self) -> str:
        length = self._digits()
        text = self._text[self._at : self._at + length]
        if not length or len(text) < length:
            raise NotMangled(self._text)
        self._at += length
        return "(anonymous namespace)" if text.startswith("_GLOBAL__N") else text

    def _operator_name(self) -> tuple[str, bool]:
        code = self._peek(2)
        if code == "cv":
            self._at += 2
            return f"operator {self._type()}", True
        if code == "li":
            self._at += 2
            return f'operator"" {self._source_name()}', False
        name = OPERATOR_NAMES.get(code)
        if name is None:
            raise NotMangled(self._text)
        self._at += 2
        return f"operator{' ' if name[0].isalpha() else ''}{name}", False

    def _literal(self) -> str:
        self._need("L")
        if self._take("_Z"):
            self._depth += 1
            text = self._encoding()
            self._depth -= 1
            self._need("E")
            return text
        code = self._peek()
        if code == "b" and self._peek(3) in ("b0E", "b1E"):
            self._at += 3
            return "true" if self._text[self._at - 2] == "1" else "false"
        if self._take("DnE") or self._take("Dn0E"):
            return "nullptr"
        declared = self._type()
        if self._take("E"):
            return str(declared)
        if code in ("f", "d", "e"):
            end = self._text.find("E", self._at)
            if end < 0:
                raise NotMangled(self._text)
            digits, self._at = self._text[self._at : end], end + 1
            return f"({declared})[{digits}]"
        value = self._number()
        self._need("E")
        if code in INTEGER_SUFFIXES:
            return value + INTEGER_SUFFIXES[code]
        return f"({declared}){value}"

    def _expression(self) -> str:
        self._step()
        self._depth += 1
        text = self._bounded(self._any_expression())
        self._depth -= 1
        return text

    def _any_expression(self) -> str:
        character, code = self._peek(), self._peek(2)
        if character == "L":
            return self._literal()
        if character == "T":
            return str(self._template_parameter())
        if code in ("fp", "fL"):
            return self._function_parameter()
        if is_digit(character) or code in ("on", "gs", "sr", "dn"):
            return self._unresolved_name()
        self._at += 2
        if code in UNARY_OPERATORS:
            is_simple = self._peek() in ("L", "T")
            operand = self._expression()
            return UNARY_OPERATORS[code] + (operand if is_simple else f"({operand})")
        if code in BINARY_OPERATORS:
            left = self._expression()
            return f"({left}) {BINARY_OPERATORS[code]} ({self._expression()})"
        if code in ("st", "at", "ti"):
            return f"{ {'st': 'sizeof', 'at': 'alignof', 'ti': 'typeid'}[code] } ({self._type()})"
        if code in ("sz", "az", "te", "nx"):
            word = {"sz": "sizeof", "az": "alignof", "te": "typeid", "nx": "noexcept"}[code]
            return f"{word} ({self._expression()})"
        if code in ("sZ", "sP"):
            return f"sizeof...({self._arguments('E') if code == 'sP' else self._expression()})"
        if code == "sp":
            return f"{self._expression()}..."
        if code == "cl":
            callee = self._expression()
            return f"{callee}({self._arguments('E')})"
        if code == "cv":
            declared = self._type()
            if self._take("_"):
                return f"({declared})({self._arguments('E')})"
            return f"({declared})({self._expression()})"
        if code in ("sc", "dc", "cc", "rc"):
            word = {"sc": "static", "dc": "dynamic", "cc": "const", "rc": "reinterpret"}[code]
            declared = self._type()
            return f"{word}_cast<{declared}>({self._expression()})"
        if code in ("tl", "il"):
            declared_text = str(self._type()) if code == "tl" else ""
            return f"{declared_text}{{{self._arguments('E')}}}"
        if code in ("dt", "pt"):
            left = self._expression()
            return f"{left}{'.' if code == 'dt' else '->'}{self._expression()}"
        if code == "ix":
            left = self._expression()
            return f"{left}[{self._expression()}]"
        if code == "qu":
            condition, first = self._expression(), self._expression()
            return f"({condition}) ? ({first}) : ({self._expression()})"
        raise NotMangled(self._text)

    def _arguments(self, end: str) -> str:
        parts: list[str] = []
        while not self._take(end):
            parts.append(self._expression())
        return ", ".join(parts)

    def _function_parameter(self) -> str:
        if self._take("fpT"):
            return "this"
        if self._take("fL"):
            self._digits()
            self._need("p")
        else:
            self._need("fp")
        self._qualifiers()
        number = "" if self._peek() == "_" else str(self._digits())
        self._need("_")
        return f"fp{number}"

    def _unresolved_name(self) -> str:
        prefix = "::" if self._take("gs") else ""
        if self._take("sr"):
            if self._take("N"):
                parts = [str(self._type())]
                while not self._take("E"):
                    parts.append(self._simple_id())
            elif is_digit(self._peek()):
                parts = []
                while not self._take("E"):
                    parts.append(self._simple_id())
            else:
                parts = [str(self._type())]
            return f"{prefix}{'::'.join(parts)}::{self._base_name()}"
        return prefix + self._base_name()

    def _base_name(self) -> str:
        if self._take("on"):
            text = self._operator_name()[0]
            return text + (self._template_args(tag=False) if self._peek() == "I" else "")
        if self._take("dn"):
            return f"~{self._simple_id() if is_digit(self._peek()) else self._type()}"
        return self._simple_id()

    def _simple_id(self) -> str:
        text = self._source_name()
        return text + (self._template_args(tag=False) if self._peek() == "I" else "")
