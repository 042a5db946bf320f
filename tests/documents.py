"""What do the documents say: which files are there, where do they link to, and which commands do they show?"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "bench" / "README.md",
        ROOT / "tests" / "gpu" / "README.md",
    ]
)
_FENCE = re.compile(r"^ {0,3}```[^\n]*\n.*?^ {0,3}```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CONSOLE = re.compile(r"^```console\n(?P<lines>.*?)^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """A line that a reader may type."""

    document: str
    line: str


def links(document: Path) -> Iterator[str]:
    """Yield where a document links to."""
    for link in _LINK.finditer(_CODE.sub("", _FENCE.sub("", document.read_text()))):
        yield link["target"]


def anchors(document: Path) -> set[str]:
    """Return what can stand behind `#` in a link to a document, as code hosts and mkdocs make it of headings."""
    found: set[str] = set()
    for heading in _HEADING.finditer(_FENCE.sub("", document.read_text())):
        title = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", heading["title"])).lower()
        found.add(re.sub(r"[\s]", "-", re.sub(r"[^\w\s-]", "", title)))
    return found


def commands() -> Iterator[Command]:
    """Yield every command that a document shows, without its comment."""
    for document in DOCUMENTS:
        for block in _CONSOLE.finditer(document.read_text()):
            for line in block["lines"].splitlines():
                if line.startswith("$ "):
                    yield Command(str(document.relative_to(ROOT)), re.sub(r"\s+#\s.*$", "", line[2:]).strip())
