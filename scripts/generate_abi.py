"""Writes otel_gpu/bpf/abi/: a module for each header of ebpf/abi/, with its enumerations, constants and structures.

Types, offsets and values are those that clang puts into an object; names and comments are those of the headers. Run by
`make generate`, and by a unit test that fails where a module differs from its header. With `--check` nothing is written.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from otel_gpu.sandbox.elf import ElfFile

_ROOT = Path(__file__).parents[1]
_SOURCES = _ROOT / "ebpf"
_MODULES = _ROOT / "otel_gpu" / "bpf" / "abi"
_WIDTH = 120
_PREFIX = "otel_gpu_value_of_"
_INT, _ARRAY, _STRUCT, _ENUM, _TYPEDEF = 1, 3, 4, 6, 8
_MODIFIERS = (8, 9, 10, 11, 18)
_EXTRA = {
    1: (4, 0),
    3: (12, 0),
    4: (0, 12),
    5: (0, 12),
    6: (0, 8),
    13: (0, 8),
    14: (4, 0),
    15: (0, 12),
    17: (4, 0),
    19: (0, 12),
}
"""Kind -> bytes behind the type: fixed, and for each of its members (Documentation/bpf/btf.rst)."""
_COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/"


class HeaderError(Exception):
    """A header holds what has no equal in Python."""


@dataclass(frozen=True)
class Member:
    """A field or an enumerator, as a header declares it, with the comment behind it and that above it."""

    name: str
    comment: str = ""
    above: str = ""


@dataclass(frozen=True)
class Declaration:
    """One declaration of a header. A constant has no members."""

    kind: str
    name: str
    comment: str
    members: tuple[Member, ...] = ()
    is_hexadecimal: bool = False


@dataclass(frozen=True)
class Header:
    """What a header declares, in its order."""

    name: str
    comment: str
    declarations: tuple[Declaration, ...]


@dataclass(frozen=True)
class Field:
    """A field of a structure: `kind` is NumPy's name of its type, or the name of another structure."""

    name: str
    offset: int
    kind: str
    shape: tuple[int, ...] = ()


@dataclass
class Types:
    """What clang says of the headers: structures by name (size and fields), and values of enumerators and constants."""

    structures: dict[str, tuple[int, list[Field]]] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)


def headers() -> list[Header]:
    """Return the headers of ebpf/abi/ that declare something."""
    found = [_parsed(path) for path in sorted((_SOURCES / "abi").glob("*.h"))]
    return [header for header in found if header.declarations]


def _parsed(path: Path) -> Header:
    text = path.read_text()
    comments = re.findall(_COMMENT, text, re.DOTALL)
    pattern = re.compile(
        rf"(?P<before>(?:{_COMMENT}\n)*)"
        rf"(?:(?P<kind>enum|struct)[ ](?P<name>\w+)[ ]\{{(?P<body>.*?)\n\}};"
        rf"|\#define[ ](?P<define>\w+)(?=[ \t])(?P<value>(?:\\\n|[^\n/]|/(?!\*))*)(?P<after>{_COMMENT})?)",
        re.DOTALL | re.VERBOSE,
    )
    declarations = []
    for match in pattern.finditer(text):
        if match["define"]:
            if not match["define"].startswith("OTEL_GPU_ABI_"):
                comment = _words(match["after"] or match["before"])
                is_hexadecimal = match["value"].strip().startswith("0x")
                declarations.append(Declaration("define", match["define"], comment, is_hexadecimal=is_hexadecimal))
            continue
        members = tuple(_members(match["kind"], match["body"]))
        before = re.findall(_COMMENT, match["before"], re.DOTALL)
        declarations.append(Declaration(match["kind"], match["name"], _words("".join(before[-1:])), members))
    return Header(path.stem, _words(comments[1]), tuple(declarations))


def _members(kind: str, body: str) -> Iterator[Member]:
    end = ";" if kind == "struct" else ","
    above, behind, at = "", 0, 0
    found: list[Member] = []
    for match in re.finditer(rf"(?P<comment>{_COMMENT})|(?P<text>(?:(?!/\*)[^{end}])+{end}?)", body, re.DOTALL):
        if match["comment"]:
            if found and "\n" not in body[at : match.start()]:
                found[behind:] = [replace(member, comment=_words(match["comment"])) for member in found[behind:]]
            else:
                above = _words(match["comment"])
        elif text := match["text"].strip():
            behind, at = len(found), match.end()
            for name in _names(kind, text.rstrip(end)):
                found.append(Member(name, above=above))
                above = ""
    yield from found


def _names(kind: str, text: str) -> list[str]:
    if kind == "enum":
        return [text.split("=", maxsplit=1)[0].strip()]
    declared = re.sub(r"\[[^\]]*\]", "", text)
    return [part.split()[-1] for part in declared.split(",")]


def _words(comments: str) -> str:
    """Return the text of comments on one line."""
    return " ".join(re.sub(r"/\*|\*/|^\s*\* ?", " ", comments, flags=re.MULTILINE).split())


def clang() -> str | None:
    """Return the compiler that the objects are tested with, or another of its kind; None where there is none."""
    return shutil.which("clang-14") or shutil.which("clang")


def types_of(found: list[Header]) -> Types:
    """Compile the headers and return what the object says of them."""
    compiler = clang()
    if compiler is None:
        raise HeaderError("there is no clang: `make setup` installs it")
    names = [d.name for h in found for d in h.declarations if d.kind == "define"]
    lines = [f'#include "abi/{header.name}.h"' for header in found]
    lines += [f"const long long {_PREFIX}{name}[2] = {{ (long long)({name}), ({name}) < 0 }};" for name in names]
    others = [d for h in found for d in h.declarations if d.kind != "define"]
    lines += [f"{d.kind} {d.name} *otel_gpu_pointer_to_{d.name};" for d in others]
    with tempfile.TemporaryDirectory() as directory:
        source, out = Path(directory) / "all.c", Path(directory) / "all.o"
        source.write_text("\n".join(lines) + "\n")
        command: list[str | Path] = [
            compiler,
            "-g",
            "-O2",
            "-target",
            "bpf",
            "-w",
            f"-I{_SOURCES}",
            "-c",
            "-o",
            out,
            source,
        ]
        subprocess.run(command, check=True)
        with ElfFile(out) as elf:
            section = elf.section(".BTF")
            if section is None:
                raise HeaderError("clang wrote no .BTF")
            types = _btf(elf.section_data(section))
            for symbol in elf.symbols(".symtab"):
                if symbol.name.startswith(_PREFIX):
                    data = elf.section_data(elf.sections[symbol.section])
                    value, is_negative = struct.unpack_from("<qq", data, symbol.value)
                    types.values[symbol.name.removeprefix(_PREFIX)] = (
                        value if is_negative or value >= 0 else value + (1 << 64)
                    )
    return types


def _btf(data: bytes) -> Types:
    _magic, _version, _flags, header, types_at, size, strings, _length = struct.unpack_from("<HBBIIIII", data)
    at, end = header + types_at, header + types_at + size
    entries: list[tuple[str, int, int, int, int]] = [("", 0, 0, 0, 0)]

    def name(where: int) -> str:
        start = header + strings + where
        return data[start : data.index(b"\0", start)].decode()

    while at < end:
        name_at, info, value = struct.unpack_from("<III", data, at)
        kind, count = info >> 24 & 0x1F, info & 0xFFFF
        entries.append((name(name_at), kind, count, value, at + 12))
        fixed, each = _EXTRA.get(kind, (0, 0))
        at += 12 + fixed + each * count

    def resolve(type_id: int) -> tuple[str, tuple[int, ...]]:
        called, kind, _count, value, behind = entries[type_id]
        if kind == _TYPEDEF and called == "be32":
            return ">u4", ()
        if kind in _MODIFIERS:
            return resolve(value)
        if kind == _ARRAY:
            element, _index, length = struct.unpack_from("<III", data, behind)
            inner, shape = resolve(element)
            return inner, (length, *shape)
        if kind == _INT:
            encoding = struct.unpack_from("<I", data, behind)[0]
            if called == "char":
                return "S", ()
            sign = "i" if encoding >> 24 & 1 else "u"
            return (f"{sign}1" if value == 1 else f"<{sign}{value}"), ()
        if kind == _STRUCT and called:
            return called, ()
        raise HeaderError(f"a field of type {called or 'without a name'} (BTF kind {kind})")

    types = Types()
    for called, kind, count, value, behind in entries:
        if kind == _STRUCT and called:
            fields = []
            for i in range(count):
                member, type_id, bits = struct.unpack_from("<III", data, behind + 12 * i)
                inner, shape = resolve(type_id)
                if inner == "S":
                    inner, shape = f"S{shape[-1]}", shape[:-1]
                if inner != "S0" and 0 not in shape:  # what has no length of its own comes behind the structure
                    fields.append(Field(name(member), bits // 8, inner, shape))
            types.structures[called] = value, fields
        elif kind == _ENUM:
            for member, number in struct.iter_unpack("<Ii", data[behind : behind + 8 * count]):
                types.values[name(member)] = number
    return types


def module(header: Header, types: Types, where: dict[str, str]) -> str:
    """Return the text of a header's module. `where` says in which header each structure is."""
    uses_enums = any(d.kind == "enum" for d in header.declarations)
    has_structs = any(d.kind == "struct" for d in header.declarations)
    origin = f"Generated from ebpf/abi/{header.name}.h by `make generate`; do not edit."
    lines = [*_docstring(f"{header.comment} {origin}", ""), "", "from __future__ import annotations"]
    if uses_enums:
        lines += ["", "import enum"]
    if has_structs:
        lines += ["", "import numpy as np"]
    imports: dict[str, set[str]] = {}
    for declaration in header.declarations:
        if declaration.kind == "struct":
            for part in types.structures[declaration.name][1]:
                if (other := where.get(part.kind, header.name)) != header.name:
                    imports.setdefault(other, set()).add(part.kind.upper())
    lines += [""] if imports else []
    for other in sorted(imports):
        lines.append(f"from .{other} import {', '.join(sorted(imports[other]))}")
    lines.append("")
    for declaration in header.declarations:
        lines += {"define": _constant, "enum": _enumeration, "struct": _structure}[declaration.kind](declaration, types)
    return "\n".join(lines).rstrip() + "\n"


def _constant(declaration: Declaration, types: Types) -> list[str]:
    value = types.values[declaration.name]
    text = (
        f"{value:#x}" if declaration.is_hexadecimal or value > 1 << 32 else f"{value:_}" if value > 9999 else str(value)
    )
    return [f"{declaration.name} = {text}", *_docs(declaration.comment, "")]


def _enumeration(declaration: Declaration, types: Types) -> list[str]:
    members = list(declaration.members)
    # The last enumerators may say how many there are.
    counts: list[Member] = []
    while re.search(r"(_COUNT|_KINDS|_TYPES|_OPERATIONS|_SIDES|_OF_API)$", members[-1].name):
        counts.insert(0, members.pop())
    prefix = _common_prefix([m.name for m in members], declaration.name)
    if not declaration.comment:
        raise HeaderError(f"enum {declaration.name} has no comment that says what it is")
    lines = ["", "", f"class {_class_name(declaration.name)}(enum.IntEnum):", *_docstring(declaration.comment, "    ")]
    lines.append("")
    for member in members:
        lines.append(f"    {member.name.removeprefix(prefix)} = {types.values[member.name]}")
        lines += _docs(member.comment or member.above, "    ")
    lines += ["", ""]
    lines += [f"{count.name} = {types.values[count.name]}" for count in counts]
    return lines


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _structure(declaration: Declaration, types: Types) -> list[str]:
    size, fields = types.structures[declaration.name]
    members = {member.name: member for member in declaration.members}
    lines, at = [], 0
    for part in fields:
        if part.offset != at:
            raise HeaderError(f"struct {declaration.name} has a gap before {part.name}: say `pad`")
        kind = f'"{part.kind}"' if part.kind not in types.structures else part.kind.upper()
        shape = f", ({', '.join(map(str, part.shape))}{',' if len(part.shape) == 1 else ''})" if part.shape else ""
        line = f'        ("{part.name}", {kind}{shape}),'
        comment, above = members[part.name].comment, members[part.name].above
        lines += [f"        # {one}" for one in textwrap.wrap(above, _WIDTH - 10)]
        if comment and len(line) + len(comment) + 4 <= _WIDTH:
            lines.append(f"{line}  # {comment}")
        else:
            lines += [*(f"        # {one}" for one in textwrap.wrap(comment, _WIDTH - 10)), line]
        length = 1
        for dimension in part.shape:
            length *= dimension
        at += length * (_size_of(part.kind, types))
    if at != size:
        raise HeaderError(f"struct {declaration.name} has {size - at} bytes behind its last field: say `pad`")
    name = declaration.name.upper()
    return [f"{name} = np.dtype(", "    [", *lines, "    ]", ")", *_docs(declaration.comment, "")]


def _size_of(kind: str, types: Types) -> int:
    return types.structures[kind][0] if kind in types.structures else int(re.sub(r"\D", "", kind))


def _docstring(comment: str, indent: str) -> list[str]:
    """Return the first sentence on a line, and the others behind it."""
    first, _, rest = comment.partition(". ")
    if len(first) + len(indent) + 7 > _WIDTH:
        raise HeaderError(f"a first sentence that is too long for a line: {first}")
    if not rest:
        return [f'{indent}"""{first.rstrip(".")}."""']
    return [
        f'{indent}"""{first}.',
        "",
        *(indent + line for line in textwrap.wrap(rest.rstrip(".") + ".", _WIDTH - len(indent))),
        f'{indent}"""',
    ]


def _docs(comment: str, indent: str) -> list[str]:
    if not comment:
        return []
    text = comment if "_" in comment.split(maxsplit=1)[0] else comment[0].upper() + comment[1:]
    return [f'{indent}"""{_wrapped(text + ("" if text[-1] in ".:?" else "."), indent)}"""']


def _wrapped(text: str, indent: str) -> str:
    return f"\n{indent}".join(textwrap.wrap(text, _WIDTH - len(indent) - 6))


def _common_prefix(names: list[str], of: str) -> str:
    parts = [name.split("_") for name in names]
    common = 0
    while all(len(part) > common + 1 for part in parts) and len({part[common] for part in parts}) == 1:
        common += 1
    if len(names) == 1:
        common = len(of.split("_"))
    return "".join(f"{part}_" for part in parts[0][:common])


def _refuse_names_that_stand_twice(found: list[Header]) -> None:
    names = Counter(d.name.upper() for header in found for d in header.declarations if d.kind != "enum")
    names += Counter(_class_name(d.name) for header in found for d in header.declarations if d.kind == "enum")
    if twice := [name for name, count in names.items() if count > 1]:
        raise HeaderError(f"two things of the headers are {', '.join(twice)} in Python: give one another name")


def written() -> dict[str, str]:
    """Return the modules as they should be, by file name."""
    found = headers()
    types = types_of(found)
    where = {d.name: h.name for h in found for d in h.declarations if d.kind == "struct"}
    _refuse_names_that_stand_twice(found)
    texts = {f"{header.name}.py": module(header, types, where) for header in found}
    texts["__init__.py"] = (
        '"""What crosses the border between the kernel and Python: a module for each header of ebpf/abi/, which `make generate` writes."""\n'
    )
    return _formatted(texts)


def _formatted(texts: dict[str, str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as directory:
        for name, text in texts.items():
            (Path(directory) / name).write_text(text)
        command = [sys.executable, "-m", "ruff", "format", "-q", "--config", _ROOT / "pyproject.toml", directory]
        subprocess.run([str(part) for part in command], check=True)
        return _read(Path(directory))


def _read(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.glob("*.py")}


def differences(texts: dict[str, str]) -> list[str]:
    """Return how the modules that are there differ from those of these texts, as lines of a unified diff."""
    present = _read(_MODULES)
    return [
        line
        for name in sorted({*texts, *present})
        for line in difflib.unified_diff(
            present.get(name, "").splitlines(),
            texts.get(name, "").splitlines(),
            f"otel_gpu/bpf/abi/{name}",
            "as generated",
            lineterm="",
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write otel_gpu/bpf/abi/ from ebpf/abi/.")
    parser.add_argument("--check", action="store_true", help="only say what differs; exit 1 if something does")
    checks = parser.parse_args().check
    texts = written()
    if checks:
        for line in differences(texts):
            print(line)
        return int(texts != _read(_MODULES))
    _MODULES.mkdir(exist_ok=True)
    present = _read(_MODULES)
    for name in present.keys() - texts.keys():
        (_MODULES / name).unlink()
    for name, text in texts.items():
        if present.get(name) != text:
            (_MODULES / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
