"""How does the Itanium C++ ABI spell names? A parser of mangled names with a budget of steps, depth and text.

Follows https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling; section names there are method names here.
"""

from __future__ import annotations

from .itanium_cursor import MAX_STEPS, Name, NotMangled, Type, is_digit
from .itanium_expressions import ExpressionParser
from .itanium_tables import BUILTIN_TYPES, D_TYPES, SPECIAL_NAMES, STD_SUBSTITUTIONS

__all__ = ["NotMangled", "Parser"]


class Parser(ExpressionParser):
    """Reads one mangled name; raises NotMangled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._substitutions: list[Type] = []
        self._template_arguments: list[Type] = []
        self._pack_index: int | None = None
        self._lambda_depth = 0

    def parse(self) -> str:
        """Return the source form of the whole name."""
        if not self._take("_Z"):
            raise NotMangled(self._text)
        text = self._encoding()
        if self._at < len(self._text):
            if self._peek() != ".":
                raise NotMangled(self._text)
            text += f" ({self._text[self._at :]})"
        return text

    # Names and encodings

    def _encoding(self) -> str:
        self._step()
        for code, words in SPECIAL_NAMES.items():
            if self._take(code):
                return self._special(code, words)
        saved = self._template_arguments
        name = self._name(tag=True)
        if self._at >= len(self._text) or self._peek() in ("E", "."):
            self._template_arguments = saved
            return name.text
        returned = self._type() if name.is_template and not name.has_no_return else None
        text = f"{name.text}({self._parameters()}){name.qualifiers}"
        self._template_arguments = saved
        if returned is not None:
            text = f"{returned.left}{'' if returned.left.endswith(('(', ' ')) else ' '}{text}{returned.right}"
        return self._bounded(text)

    def _special(self, code: str, words: str) -> str:
        if code in ("Th", "Tv"):
            self._number()
            self._need("_")
            if code == "Tv":
                self._number()
                self._need("_")
            return words + self._encoding()
        if code in ("GV", "GR"):
            text = words + self._name(tag=False).text
            if code == "GR":
                self._sequence_id()
            return text
        return words + str(self._type())

    def _parameters(self) -> str:
        parameters: list[str] = []
        while self._at < len(self._text) and self._peek() not in ("E", ".", "Q") and not self._at_reference_qualifier():
            parameters.append(str(self._type()))
        if parameters == ["void"]:
            return ""
        return self._bounded(", ".join(p for p in parameters if p))

    def _at_reference_qualifier(self) -> bool:
        return self._peek(2) in ("RE", "OE")

    def _name(self, *, tag: bool) -> Name:
        self._step()
        if self._peek() == "N":
            return self._nested_name(tag=tag)
        if self._peek() == "Z":
            return self._local_name(tag=tag)
        if self._peek() == "S" and self._peek(2) != "St":
            text = str(self._substitution())
            if self._peek() != "I":
                raise NotMangled(self._text)
            return Name(self._bounded(text + self._template_args(tag=tag)), is_template=True)
        prefix = "std::" if self._take("St") else ""
        part, has_no_return = self._unqualified_name("")
        text = prefix + part
        if self._peek() == "I":
            self._substitutions.append(Type(text))
            return Name(self._bounded(text + self._template_args(tag=tag)), True, has_no_return)
        return Name(text, False, has_no_return)

    def _nested_name(self, *, tag: bool) -> Name:
        self._need("N")
        qualifiers = self._qualifiers()
        if self._take("R"):
            qualifiers += " &"
        elif self._take("O"):
            qualifiers += " &&"
        text, last, is_template, has_no_return = "", "", False, False
        while not self._take("E"):
            self._step()
            is_substitution = False
            character = self._peek()
            if character == "S" and self._peek(2) != "St":
                text, is_substitution = str(self._substitution()), True
                last = text.split("<")[0].split("::")[-1]
            elif character == "S":
                self._at += 2
                text, is_substitution = "std", True
            elif character == "T":
                text, is_template = str(self._template_parameter()), False
            elif character == "I":
                if not text:
                    raise NotMangled(self._text)
                text, is_template = text + self._template_args(tag=tag), True
            elif self._peek(2) in ("Dt", "DT"):
                text = str(self._type())
                continue
            else:
                part, has_no_return = self._unqualified_name(last)
                last, is_template = part.split("[abi:")[0], False
                text = f"{text}::{part}" if text else part
                self._take("M")
            self._bounded(text)
            if self._peek() != "E" and not is_substitution:
                self._substitutions.append(Type(text))
        if not text:
            raise NotMangled(self._text)
        return Name(text, is_template, has_no_return, qualifiers)

    def _local_name(self, *, tag: bool) -> Name:
        self._need("Z")
        self._depth += 1
        scope = self._encoding()
        self._depth -= 1
        self._need("E")
        if self._take("s"):
            self._discriminator()
            return Name(f"{scope}::string literal")
        if self._take("d"):
            if self._peek() != "_":
                self._number()
            self._need("_")
        inner = self._name(tag=tag)
        self._discriminator()
        return inner._replace(text=self._bounded(f"{scope}::{inner.text}"))

    def _unqualified_name(self, scope: str) -> tuple[str, bool]:
        """Return one part of a name, and whether a function of that name declares no return type."""
        self._step()
        has_no_return = False
        self._take("L")
        character = self._peek()
        if is_digit(character):
            text = self._source_name()
        elif character == "C" and self._peek(2) in ("C1", "C2", "C3", "C4", "C5"):
            self._at += 2
            text, has_no_return = scope, True
        elif character == "D" and self._peek(2) in ("D0", "D1", "D2", "D4", "D5"):
            self._at += 2
            text, has_no_return = f"~{scope}", True
        elif self._take("Ut"):
            text = f"{{unnamed type#{self._closure_number()}}}"
        elif self._take("Ul"):
            self._lambda_depth += 1
            parameters = self._parameters()
            self._lambda_depth -= 1
            self._need("E")
            text = f"{{lambda({parameters})#{self._closure_number()}}}"
        elif self._take("DC"):
            parts = []
            while not self._take("E"):
                parts.append(self._source_name())
            text = f"[{', '.join(parts)}]"
        else:
            text, has_no_return = self._operator_name()
        while self._take("B"):
            text += f"[abi:{self._source_name()}]"
        return text, has_no_return

    # Types

    def _type(self) -> Type:
        self._step()
        self._depth += 1
        result = self._any_type()
        self._depth -= 1
        self._bounded(result.left + result.right)
        return result

    def _any_type(self) -> Type:
        character = self._peek()
        if character in ("r", "V", "K"):
            qualifiers = self._qualifiers()
            return self._remember(self._type().qualified(qualifiers))
        if character in ("P", "R", "O"):
            self._at += 1
            inner = self._type()
            mark = {"P": "*", "R": "&", "O": "&&"}[character]
            if inner.pack is not None:
                return self._remember(Type("", "", "", tuple(t.wrapped(mark) for t in inner.pack)))
            return self._remember(inner.wrapped(mark))
        if character in BUILTIN_TYPES:
            self._at += 1
            return Type(BUILTIN_TYPES[character])
        if character == "F":
            return self._remember(self._function_type(""))
        if character == "A":
            return self._remember(self._array_type())
        if character == "M":
            return self._remember(self._member_pointer())
        if character == "T":
            return self._template_type()
        if character == "S" and self._peek(2) != "St":
            found = self._substitution()
            if self._peek() != "I":
                return found
            return self._remember(Type(self._bounded(f"{found}{self._template_args(tag=False)}")))
        if character == "D":
            return self._d_type()
        if character == "u":
            self._at += 1
            text = self._source_name()
            return self._remember(Type(text + (self._template_args(tag=False) if self._peek() == "I" else "")))
        if character == "U":
            self._at += 1
            qualifier = self._source_name()
            if self._peek() == "I":
                qualifier += self._template_args(tag=False)
            return self._remember(self._type().qualified(f" {qualifier}"))
        return self._remember(Type(self._name(tag=False).text))

    def _remember(self, found: Type) -> Type:
        self._substitutions.append(found)
        return found

    def _template_type(self) -> Type:
        if self._peek(2) in ("Ts", "Tu", "Te"):
            self._at += 2
            return self._remember(Type(self._name(tag=False).text))
        found = self._remember(self._template_parameter())
        if self._peek() == "I":
            return self._remember(Type(self._bounded(f"{found}{self._template_args(tag=False)}")))
        return found

    def _template_parameter(self) -> Type:
        self._need("T")
        index = 0 if self._peek() == "_" else self._digits() + 1
        self._need("_")
        if self._lambda_depth:
            return Type(f"auto:{index + 1}")
        if index >= len(self._template_arguments):
            raise NotMangled(self._text)
        found = self._template_arguments[index]
        if found.pack is not None and self._pack_index is not None:
            if self._pack_index >= len(found.pack):
                raise NotMangled(self._text)
            return found.pack[self._pack_index]
        return found

    def _substitution(self) -> Type:
        self._need("S")
        character = self._peek()
        if character in STD_SUBSTITUTIONS and character:
            self._at += 1
            text = STD_SUBSTITUTIONS[character]
            while self._take("B"):
                text += f"[abi:{self._source_name()}]"
            return Type(text)
        index = self._sequence_id()
        if index >= len(self._substitutions):
            raise NotMangled(self._text)
        found = self._substitutions[index]
        if found.pack is not None and self._pack_index is not None and self._pack_index < len(found.pack):
            return found.pack[self._pack_index]
        return found

    def _function_type(self, suffix: str) -> Type:
        self._need("F")
        self._take("Y")
        returned = self._type()
        parameters = self._parameters()
        if self._take("R"):
            suffix = " &" + suffix
        elif self._take("O"):
            suffix = " &&" + suffix
        self._need("E")
        return Type(f"{returned.left} ", self._bounded(f" ({parameters}){suffix}{returned.right}").lstrip(), "f")

    def _array_type(self) -> Type:
        self._need("A")
        size = "" if self._peek() == "_" else self._size()
        self._need("_")
        element = self._type()
        return Type(f"{element.left} " if not element.shape else element.left, f"[{size}]{element.right}", "a")

    def _member_pointer(self) -> Type:
        self._need("M")
        owner = self._type()
        member = self._type()
        if member.shape == "f":
            return Type(f"{member.left}({owner}::*", ")" + member.right)
        return Type(f"{member.left} {owner}::*", member.right)

    def _d_type(self) -> Type:
        code = self._peek(2)
        if code in D_TYPES:
            self._at += 2
            return Type(D_TYPES[code])
        self._at += 2
        if code == "Dp":
            return self._remember(self._pack_expansion())
        if code in ("Dt", "DT"):
            text = self._expression()
            self._need("E")
            return self._remember(Type(f"decltype({text})"))
        if code == "DF":
            bits = self._digits()
            kind = "std::bfloat16_t" if self._take("b") else f"_Float{bits}"
            self._take("x")
            self._take("_")
            return Type(kind)
        if code == "Dv":
            size = self._size()
            self._need("_")
            return self._remember(Type(f"{self._type()} vector[{size}]"))
        if code == "Do":
            return self._remember(self._function_type(" noexcept"))
        if code in ("DB", "DU"):
            size = self._size()
            self._need("_")
            return Type(f"{'unsigned ' if code == 'DU' else ''}_BitInt({size})")
        raise NotMangled(self._text)

    def _pack_expansion(self) -> Type:
        """Read a pattern once for each element of the pack in it."""
        start, known = self._at, len(self._substitutions)
        first = self._type()
        if first.pack is not None:
            return first
        end, elements, outer = self._at, [], self._pack_index
        lengths = {len(t.pack) for t in self._template_arguments if t.pack is not None}
        if first.left.startswith("auto:") or not lengths:
            return Type(f"{first}...")
        for index in range(max(lengths)):
            self._at, self._pack_index = start, index
            remembered = self._substitutions[known:]
            del self._substitutions[known:]
            try:
                elements.append(self._type())
            except NotMangled:
                if self._steps > MAX_STEPS:
                    raise
                break
            finally:
                self._substitutions[known:] = remembered
        self._at, self._pack_index = end, outer
        return Type("", "", "", tuple(elements))

    # Template arguments and expressions

    def _template_args(self, *, tag: bool) -> str:
        self._need("I")
        if tag:
            self._template_arguments = []
        arguments: list[Type] = []
        while not self._take("E"):
            argument = self._template_arg()
            arguments.append(argument)
            if tag:
                self._template_arguments = list(arguments)
        return self._bounded(f"<{', '.join(text for text in map(str, arguments) if text)}>")

    def _template_arg(self) -> Type:
        self._step()
        character = self._peek()
        if character == "X":
            self._at += 1
            text = self._expression()
            self._need("E")
            return Type(text)
        if character == "L":
            return Type(self._literal())
        if character in ("J", "I"):
            self._at += 1
            elements: list[Type] = []
            while not self._take("E"):
                elements.append(self._template_arg())
            return Type("", "", "", tuple(elements))
        if self._take("Tn"):
            self._type()
            return self._template_arg()
        return self._type()
