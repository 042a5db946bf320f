"""Are the dashboards that are committed what the generator makes, and does each panel say what it is?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk needs Python 3.11")

from scripts.dashboards.__main__ import BOARDS, DIRECTORY, text
from scripts.dashboards.board import Board
from scripts.dashboards.promql import gauge, label, rate


def _panels(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in of.get("panels", ()):
        yield panel
        yield from _panels(panel)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_what_is_committed_is_what_is_generated(board: Board) -> None:
    assert (DIRECTORY / board.file).read_text() == text(board), "python -m scripts.dashboards"


def test_nothing_else_is_committed() -> None:
    assert {path.name for path in DIRECTORY.glob("*.json")} == {board.file for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_each_panel_says_what_it_is(board: Board) -> None:
    made = json.loads(text(board))
    panels = [panel for panel in _panels(made) if panel["type"] != "row"]

    assert made["uid"] == f"otel-gpu-{board.name}"
    for panel in panels:
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_links_lead_to_dashboards_that_there_are(tmp_path: Path) -> None:
    there = {f"/d/otel-gpu-{board.name}" for board in BOARDS}

    urls = [
        link["url"]
        for board in BOARDS
        for panel in _panels(json.loads(text(board)))
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", ())
    ]

    assert urls
    assert {url.split("?")[0] for url in urls} <= there | {"/explore"}


def test_what_is_not_declared_is_not_asked_for() -> None:
    with pytest.raises(ValueError, match="no metric"):
        gauge("gpu.cuda.memory.usages")
    with pytest.raises(ValueError, match="no attribute"):
        rate("gpu.cuda.errors", ("cuda.kernel.name",))
    with pytest.raises(ValueError, match="no attribute"):
        label("cuda.kernel.names")
