"""What is counted in the kernel for receivers that need it, and what becomes of them where it cannot be?"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from otel_gpu.components import Context, ReceiverFactory, registry
from otel_gpu.errors import UnsupportedKernelError
from otel_gpu.probes.counted import Counted
from otel_gpu.receivers.inference.settings import InferenceSettings
from otel_gpu.receivers.nccl.settings import NcclSettings
from otel_gpu.receivers.nvml.settings import NvmlSettings
from otel_gpu.receivers.profiles.settings import ProfileSettings
from otel_gpu.service.observation import Observation, counted_for

_TIMES = ProfileSettings(("gputime",))


@pytest.mark.parametrize(
    ("wanted", "counted"),
    [
        ({"nccl": NcclSettings()}, Counted.LAUNCHES),
        ({"nccl": NcclSettings(), "inference": InferenceSettings()}, Counted.NO_TIME),
        ({"profile": ProfileSettings(("launch",)), "inference": InferenceSettings()}, Counted.NO_TIME),
        ({"inference": InferenceSettings(), "profile": _TIMES, "nvml": NvmlSettings()}, Counted.ALL),
    ],
)
def test_as_much_is_counted_as_the_most_demanding_needs(wanted: Mapping[str, object], counted: Counted) -> None:
    assert counted_for(wanted) is counted
    assert counted_for(dict(reversed(wanted.items()))) is counted


@dataclass(frozen=True)
class _Settings:
    counted: Counted | None = None


class _Receiver:
    def close(self) -> None:
        pass


def _needing(context: Context, _settings: _Settings) -> _Receiver:
    context.counting()
    return _Receiver()


def _refused(_context: Context, _settings: _Settings) -> _Receiver:
    raise UnsupportedKernelError("this kernel is too old")


@pytest.fixture
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have receivers of which one counts, on a kernel where it cannot."""
    known = {
        registry.COUNTING: ReceiverFactory(_Settings, _refused, counts_for_others=_Settings),
        "needing": ReceiverFactory(_Settings, _needing),
        "other": ReceiverFactory(_Settings, lambda _context, _settings: _Receiver()),
    }
    monkeypatch.setattr(registry, "find", lambda _kind, name: known.get(name))


@pytest.mark.parametrize("wanted", [("needing",), ("needing", registry.COUNTING)])
@pytest.mark.usefixtures("factories")
def test_where_all_need_what_cannot_be_counted_the_reason_is_raised(wanted: tuple[str, ...]) -> None:
    observation = Observation(dict.fromkeys(wanted, _Settings()))

    with pytest.raises(UnsupportedKernelError, match="too old"):
        observation.open()


@pytest.mark.usefixtures("factories")
def test_who_does_not_need_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    observation = Observation({"needing": _Settings(), "other": _Settings()})

    with caplog.at_level(logging.WARNING):
        observation.open()

    assert list(observation.receivers) == ["other"]
    assert "this kernel is too old" in caplog.text
