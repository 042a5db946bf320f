"""Which way of placing probes is taken, what does it need, and do the documents and the service say the same?"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gpu.bpf.features import Features
from otel_gpu.bpf.link_mode import LinkMode, usable_mode
from otel_gpu.errors import UnsupportedKernelError
from otel_gpu.service.rights import SERVICE

ROOT = Path(__file__).parent.parent.parent
NEW = Features(
    permitted=True,
    btf=True,
    uprobes=True,
    ring_buffer=True,
    attach_cookie=True,
    bpf_loop=True,
    uprobe_multi=True,
    perf_uprobe=False,
    perf_uprobe_needs_admin=True,
    perf_events_need_admin=False,
    open_for_all=True,
)
BETWEEN = dataclasses.replace(NEW, uprobe_multi=False)
OPEN = dataclasses.replace(BETWEEN, perf_uprobe=True)
OLD = dataclasses.replace(OPEN, attach_cookie=False)


@pytest.mark.parametrize(
    "asked, features, taken",
    [
        ("auto", NEW, "multi"),
        ("auto", OPEN, "perf"),
        ("auto", OLD, "copies"),
        ("multi", NEW, "multi"),
        ("perf", OPEN, "perf"),
        ("copies", OPEN, "copies"),
        # Nothing is permitted: loading the programs will say so.
        ("perf", dataclasses.replace(BETWEEN, permitted=False), "perf"),
    ],
)
def test_the_best_way_that_is_open_is_taken(asked: LinkMode, features: Features, taken: LinkMode) -> None:
    assert usable_mode(asked, features) == taken


@pytest.mark.parametrize(
    "asked, features, says",
    [
        ("perf", NEW, r"give it CAP_SYS_ADMIN, .* or leave `link` at auto"),
        ("copies", NEW, r"give it CAP_SYS_ADMIN, .* or leave `link` at auto"),
        ("auto", BETWEEN, r"give it CAP_SYS_ADMIN, .* or run Linux 6\.6 or newer"),
        ("perf", BETWEEN, r"give it CAP_SYS_ADMIN, .* or run Linux 6\.6 or newer"),
        ("multi", OPEN, r"run Linux 6\.6 or newer, or leave `link` at auto"),
    ],
)
def test_a_way_that_is_closed_says_what_opens_it(asked: LinkMode, features: Features, says: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=says):
        usable_mode(asked, features)


@pytest.mark.parametrize("key", ["AmbientCapabilities", "CapabilityBoundingSet"])
def test_the_service_has_what_is_needed_and_no_more(key: str) -> None:
    (given,) = re.findall(rf"^{key}=(.*)$", (ROOT / "deploy/systemd/otel-gpu.service").read_text(), re.MULTILINE)

    assert set(given.split()) == {c.name for c in SERVICE}


@pytest.mark.parametrize("document", ["README.md", "docs/operations.md"])
def test_the_documents_name_each_right(document: str) -> None:
    text = (ROOT / document).read_text()

    assert all(f"`{c.name}`" in text for c in SERVICE)


def test_a_thread_that_was_there_before_is_told_of() -> None:
    program = (
        "import threading, time\n"
        "from otel_gpu.runtime import privileges\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "privileges.limit(())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "keeps them" in done.stderr


def test_without_limits_everything_is_done_at_once() -> None:
    program = (
        "import threading\n"
        "from otel_gpu.runtime import privileges\n"
        "assert privileges.perform(threading.get_ident) == threading.get_ident()\n"
        "privileges.settle(privileges.held())\n"
        "assert privileges.perform(sum, [1, 2]) == 3\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
