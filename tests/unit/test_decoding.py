"""Do messages become values, and does no thread crash the others over it?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import msgspec
import pytest

from otel_gpu.sandbox.decoding import decode

ALL_AT_ONCE = """
import dataclasses, sys, threading, msgspec
from otel_gpu.sandbox.decoding import decode
sys.setswitchinterval(1e-6)
message = msgspec.msgpack.encode({"field_0": {"field_1": None}})
for number in range(150):
    made = [int]
    for n in range(8):
        fields = [(f"field_{i}", made[-1] | None, None) for i in range(6)]
        made.append(dataclasses.make_dataclass(f"C{n}", fields, frozen=True))
    begins = threading.Barrier(8)
    def work(kind):
        begins.wait()
        assert type(decode(message, kind)) is kind
    threads = [threading.Thread(target=work, args=(kind,)) for kind in made[-4:] * 2]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@dataclass(frozen=True)
class Point:
    x: int
    y: int


def test_a_message_becomes_a_value() -> None:
    assert decode(msgspec.msgpack.encode(Point(1, 2)), Point) == Point(1, 2)


def test_a_message_of_something_else_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(b"\x01", Point)


def test_threads_may_meet_a_type_at_the_same_moment() -> None:
    done = subprocess.run([sys.executable, "-c", ALL_AT_ONCE], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
