from __future__ import annotations

import itertools
import random

import pytest
from google.protobuf import any_pb2, duration_pb2
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.exporters.delivery.retry import retry_after_s, waits
from otel_gpu.exporters.delivery.settings import RetrySettings
from otel_gpu.exporters.otlp.responses import accepted
from otel_gpu.exporters.otlp.rpc_status import MAX_STATUS_BYTES, read_status


def test_waits_grow_to_a_limit() -> None:
    settings = RetrySettings(initial_interval_s=1, multiplier=2, max_interval_s=5, randomization_factor=0)

    assert list(itertools.islice(waits(settings), 5)) == [1, 2, 4, 5, 5]


def test_waits_are_spread_around_the_interval() -> None:
    settings = RetrySettings(initial_interval_s=10, multiplier=1, randomization_factor=0.5)

    drawn = list(itertools.islice(waits(settings, random.Random(1)), 200))

    assert 5 <= min(drawn) < 6
    assert 14 < max(drawn) <= 15


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:16:45 GMT", 5.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("9" * 5000, 9999999999.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, now_s=1000) == seconds


def field(number: int, payload: bytes) -> bytes:
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload


def status_with(detail: any_pb2.Any) -> bytes:
    return b"\x08\x08" + field(2, b"slow down") + field(3, detail.SerializeToString())


def test_status_with_retry_info_tells_the_delay() -> None:
    delay = duration_pb2.Duration(seconds=2, nanos=500_000_000).SerializeToString()
    detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=field(1, delay))

    status = read_status(status_with(detail))

    assert status is not None
    assert (status.message, status.retry_delay_s) == ("slow down", 2.5)


def test_status_with_other_details_tells_no_delay() -> None:
    status = read_status(status_with(any_pb2.Any(type_url="type.googleapis.com/google.rpc.DebugInfo")))

    assert status is not None
    assert status.retry_delay_s is None


@given(st.binary(max_size=200))
def test_any_bytes_as_status_or_answer_never_raise(noise: bytes) -> None:
    read_status(noise)
    accepted(noise, str)


def test_oversized_status_is_not_read() -> None:
    assert read_status(b"\x12" * (MAX_STATUS_BYTES + 1)) is None


def test_the_programs_own_random_numbers_stay_as_it_seeded_them() -> None:
    before = random.getstate()

    list(itertools.islice(waits(RetrySettings()), 5))

    assert random.getstate() == before
