"""Are bus bandwidths nccl-tests'?"""

from __future__ import annotations

import pytest

from otel_gpu.receivers.nccl.bandwidth import bus_bytes


@pytest.mark.parametrize(
    ("collective", "of_8_ranks"),
    [
        ("AllReduce", 1000 * 2 * 7 / 8),
        ("ReduceScatter", 8000 * 7 / 8),
        ("AllGather", 8000 * 7 / 8),
        ("AlltoAll", 8000 * 7 / 8),
        ("Gather", 8000 * 7 / 8),
        ("Scatter", 8000 * 7 / 8),
        ("Broadcast", 1000),
        ("Reduce", 1000),
        ("Send", 1000),
        ("Recv", 1000),
    ],
)
def test_what_goes_through_a_link_follows_from_the_whole_and_the_ranks(collective: str, of_8_ranks: float) -> None:
    """The whole of those whose count is one rank's part is 8,000 bytes."""
    assert bus_bytes(collective, 1000, 8) == of_8_ranks


def test_one_rank_alone_sends_nothing() -> None:
    assert bus_bytes("AllReduce", 1000, 1) == bus_bytes("AllGather", 1000, 1) == 0
