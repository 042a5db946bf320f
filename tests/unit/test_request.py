"""Does a request say only what can be?"""

from __future__ import annotations

import pytest

from otel_gpu.receivers.inference.request import Request
from otel_gpu.receivers.inference.trace_context import child_of, parent_of
from otel_gpu.signals.metrics import Resource

HERE = Resource(())


def test_a_request_ends_after_it_begins() -> None:
    assert Request(HERE, 10, 1_500_000_010).duration_s == 1.5
    with pytest.raises(ValueError, match="before it begins"):
        Request(HERE, 10, 9)


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True)])
def test_a_request_is_sampled_if_its_caller_is(flags: str, is_sampled: bool) -> None:
    parent = parent_of([f"00-{'1' * 32}-{'2' * 16}-{flags}"])

    assert Request(HERE, 0, 1, parent=parent).is_sampled is is_sampled
    assert Request(HERE, 0, 1, parent=parent, context=child_of(parent)).is_sampled is is_sampled
    assert Request(HERE, 0, 1).is_sampled
