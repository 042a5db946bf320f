"""Is code that a program made at run time named as its map for perf says, and only by a map that the program may read?"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.sandbox.parsers import Parsers
from otel_gpu.stacks.symbols.made_names import MadeNames
from otel_gpu.stacks.symbols.perf_map import MadeAddress, PerfMap

_OTHER_USER = 65_534


class _File:
    """A file that grows."""

    def __init__(self, text: bytes = b"") -> None:
        self.text = text

    def read(self, offset: int, size: int) -> bytes:
        return self.text[offset : offset + size]


def _names(text: bytes, *addresses: int) -> list[str]:
    functions = PerfMap(_File(text).read)
    functions.read_on()
    return [functions.name(address) for address in addresses]


def test_a_function_is_named_from_its_first_byte_to_its_last() -> None:
    text = b"7f0000001000 20 first one\n0x00007f0000002000 0x0000000000000010 JS:*second /a b.js:1:2\n"

    assert _names(text, 0x7F0000000FFF, 0x7F0000001000, 0x7F000000101F, 0x7F0000001020) == [
        "",
        "first one",
        "first one",
        "",
    ]
    assert _names(text, 0x7F000000200F) == ["JS:*second /a b.js:1:2"]


def test_the_newest_function_at_an_address_counts() -> None:
    text = b"1000 100 old\n1040 10 within\n1000 80 new\n1060 10 later\n"

    assert _names(text, 0x1000, 0x1048, 0x1068, 0x1090) == ["new", "new", "later", ""]


def test_lines_that_say_nothing_are_left_out() -> None:
    assert _names(b"\n\nnonsense\n10 zz bad\n1000 10 \n2000 10 good\n3000 10 not whole", 0x1000, 0x2000, 0x3000) == [
        "",
        "good",
        "",
    ]


def test_a_map_that_grows_is_read_on_and_one_of_another_program_anew() -> None:
    file = _File(b"1000 10 first\n2000 10 sec")
    functions = PerfMap(file.read)
    functions.read_on()
    assert [functions.name(a) for a in (0x1000, 0x2000)] == ["first", ""]

    file.text += b"ond\n1000 10 again\n"
    functions.read_on()
    assert [functions.name(a) for a in (0x1000, 0x2000)] == ["again", "second"]

    file.text = b"5000 10 other\n"
    functions.read_on()
    assert [functions.name(a) for a in (0x1000, 0x5000)] == ["", "other"]


def test_of_a_large_map_the_end_is_read() -> None:
    functions = PerfMap(_File(b"1000 10 left out\n2000 10 kept\n").read, begin=2)
    functions.read_on()

    assert [functions.name(a) for a in (0x0, 0x1000, 0x2000)] == ["", "", "kept"]


@given(st.lists(st.binary(max_size=64)), st.integers(0, (1 << 64) - 1))
def test_any_map_names_addresses_or_does_not(lines: list[bytes], address: int) -> None:
    assert isinstance(_names(b"\n".join(lines), address)[0], str)


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with Parsers() as running:
        yield running


def _ask(parsers: Parsers, text: bytes, *, user: int | None = None, link: Path | None = None) -> list[str]:
    """Ask for what a process with a map is told of; one of another user, whose map may be a link."""
    with subprocess.Popen(["sleep", "60"], user=user) as process:
        path = Path(f"/tmp/perf-{process.pid}.map")
        try:
            if link is None:
                path.write_bytes(text)
            else:
                link.write_bytes(text)
                link.chmod(0o600)
                path.symlink_to(link)
            names = MadeNames(parsers, process.pid)
            try:
                return names.names([MadeAddress(0x1000, is_return=False), MadeAddress(0x1010, is_return=True)])
            finally:
                names.close()
        finally:
            path.unlink()
            process.kill()


def test_a_process_has_its_map_read_where_perf_looks(parsers: Parsers) -> None:
    assert _ask(parsers, b"1000 10 made\n") == ["made", "made"]


def test_a_process_without_one_has_no_names(parsers: Parsers) -> None:
    names = MadeNames(parsers, os.getpid())

    assert names.names([MadeAddress(0x1000, is_return=False)]) == [""]


@pytest.mark.root
def test_what_a_program_may_not_read_is_not_read_for_it(parsers: Parsers, tmp_path: Path) -> None:
    secret = tmp_path / "secret"

    assert _ask(parsers, b"1000 10 secret\n", user=_OTHER_USER, link=secret) == ["", ""]
    assert _ask(parsers, b"1000 10 made\n", user=_OTHER_USER) == ["made", "made"]


@pytest.mark.root
def test_a_process_in_a_container_has_its_own_number_and_its_own_files(parsers: Parsers) -> None:
    script = "mount -t tmpfs none /tmp && echo 1000 10 inside > /tmp/perf-$$.map && echo && exec sleep 60"
    command = ["unshare", "--pid", "--fork", "--mount", "--kill-child", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            (inside,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
            names = MadeNames(parsers, inside)
            try:
                assert names.names([MadeAddress(0x1000, is_return=False)]) == ["inside"]
            finally:
                names.close()
        finally:
            process.kill()
