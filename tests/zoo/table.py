"""What did each program of the zoo show? The table of docs/validation.md."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.e2e.truth import Truth

_NO_ENTRY = frozenset({"cuLaunchHostFunc", "cuLaunchHostFunc_v2"})
_ALLOCATES = ("cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate", "cuArrayCreate", "cuArray3DCreate")


@dataclass
class Row:
    """One program."""

    version: str
    launching: set[str] = field(default_factory=set)
    allocating: set[str] = field(default_factory=set)
    results: dict[str, str] = field(default_factory=dict)


ROWS: dict[str, Row] = {}


def note(program: str, version: str, truth: Truth, way: str, result: str) -> None:
    """Note what a run showed, and by which entries of the driver."""
    row = ROWS.setdefault(program, Row(version))
    called = {entry.removesuffix("_ptsz").removesuffix("_ptds") for entry in truth.calls}
    row.launching |= {e for e in called if e.startswith(("cuLaunch", "cuGraphLaunch"))} - _NO_ENTRY
    row.allocating |= {e for e in called if e.startswith(_ALLOCATES)}
    row.results[way] = result


def rendered() -> str:
    """Return the table as Markdown."""
    lines = ["| program | entries that launch | entries that allocate | result |", "|---|---|---|---|"]
    for name, row in sorted(ROWS.items()):
        result = "; ".join(f"{way}: {said}" for way, said in sorted(row.results.items()))
        cells = [f"{name} {row.version}", _list(row.launching), _list(row.allocating), result]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _list(entries: set[str]) -> str:
    return ", ".join(f"`{entry}`" for entry in sorted(entries)) or "none"
