"""Whatever the documents link to is there, and whoever looks for a page finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from otel_gpu.components import registry
from scripts.links_out_of_docs import on_page_markdown
from tests.documents import DOCUMENTS, ROOT, anchors, links


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for target in links(document):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue  # another site's
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert not broken


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, which names functions."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda _loader, name, _node: name)


def _pages(entry: object) -> set[str]:
    if isinstance(entry, str):
        return {entry}
    entries = entry if isinstance(entry, list) else entry.values()
    return set().union(*(_pages(one) for one in entries))


def test_every_page_is_found_from_the_navigation() -> None:
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)

    assert _pages(site["nav"]) == {str(d.relative_to(ROOT / "docs")) for d in (ROOT / "docs").rglob("*.md")}


def test_every_receiver_has_a_page_that_says_its_limits() -> None:
    for name in registry.own("receivers"):
        page = (ROOT / "docs" / "receivers" / f"{name}.md").read_text()
        assert "\n## Limits\n" in page, name


def test_the_site_is_built_without_a_complaint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "Kernel launches" in (tmp_path / "telemetry.html").read_text()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("see [the rules](../../collector-config/rules.yaml)", "see the rules (`collector-config/rules.yaml`)"),
        ("see [SECURITY.md](../../SECURITY.md#who)", "see SECURITY.md"),
        ("see [stacks](../stacks.md#limits)", "see [stacks](../stacks.md#limits)"),
        ("see [cuda](cuda.md)", "see [cuda](cuda.md)"),
    ],
)
def test_links_out_of_the_site_become_text(written: str, shown: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="receivers/nccl.md"))

    assert on_page_markdown(written, page=page, config=None, files=None) == shown
