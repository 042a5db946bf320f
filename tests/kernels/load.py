"""Run inside a virtual machine: does this kernel take every BPF object, in each way of placing probes? Lines begin with `check: `.

What a kernel is too old for, it must be told plainly, and everything else goes on; what the verifier refuses is printed, and
the rest is loaded piece by piece. What takes long says every two minutes where it is.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import get_args

from otel_gpu.bpf.features import Features, probe
from otel_gpu.bpf.link_mode import LinkMode
from otel_gpu.config.model import Config, Pipeline
from otel_gpu.errors import LoadError, OtelGpuError
from otel_gpu.exporters.file.settings import FileSettings
from otel_gpu.receivers.cuda.settings import CudaSettings
from otel_gpu.receivers.inference.settings import InferenceSettings
from otel_gpu.receivers.nccl.settings import NcclSettings
from otel_gpu.receivers.profiles.settings import ProfileName, ProfileSettings
from otel_gpu.receivers.rdma.settings import RdmaSettings
from otel_gpu.service.agent import Agent

_SETTINGS = {
    "nccl": ("metrics", NcclSettings()),
    "rdma": ("metrics", RdmaSettings()),
    "profile": ("profiles", ProfileSettings(types=get_args(ProfileName))),
    "inference": ("traces", InferenceSettings()),
}
_SINCE = {"rdma": (5, 17), "profile": (5, 17), "inference": (6, 3)}
"""The kernels that they need."""
_NOT_BY_COPIES = frozenset({"profile", "inference"})
"""They call bpf_loop, which copies do not."""
_SILENT_S = 120


def main() -> None:
    faulthandler.dump_traceback_later(_SILENT_S, repeat=True)
    features = probe()
    _say(f"{features}")
    for mode in _modes(features):
        refused = _load(mode, _SETTINGS)
        if refused is None:
            continue
        _show(refused)
        for name in _SETTINGS:
            if (refused := _load(mode, [name])) is not None:
                _show(refused)


def _modes(features: Features) -> Iterator[LinkMode]:
    if features.uprobe_multi:
        yield "multi"
    if features.attach_cookie:
        yield "perf"
    yield "copies"


def _load(mode: LinkMode, receivers: Collection[str]) -> OtelGpuError | None:
    """Start an agent with these receivers, and CUDA's, and say what it loads; return why it does not start."""
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    pipelines = {"metrics": Pipeline(("cuda", *(n for n in receivers if _SETTINGS[n][0] == "metrics")), (), ("file",))}
    for name in receivers:
        signal = _SETTINGS[name][0]
        if signal != "metrics":
            pipelines[signal] = Pipeline((name,), (), ("file",))
    config = Config(
        receivers={"cuda": CudaSettings(link=mode), **{name: _SETTINGS[name][1] for name in receivers}},
        exporters={"file": FileSettings("/tmp/out")},
        pipelines=pipelines,
    )
    unable = {n for n in receivers if release < _SINCE.get(n, (0, 0)) or (mode == "copies" and n in _NOT_BY_COPIES)}
    began = time.monotonic()
    try:
        with _warnings() as said, Agent(config) as agent:
            took_s = time.monotonic() - began
            left_out = config.receivers.keys() - agent._observation.receivers.keys()
            loaded = [name for name in config.receivers if name not in left_out]
    except OtelGpuError as error:
        _say(f"REFUSED {mode}: {', '.join(config.receivers)}")
        return error
    as_wanted = left_out == unable and not any("not placed" in line or line.startswith("no probes") for line in said)
    _say(f"{'LOADED' if as_wanted else 'WRONG'} {mode}: {', '.join(loaded)}, in {took_s:.0f} s")
    # What a kernel is too old for is left out, and said; the rest goes on.
    reasons = [line for line in said if line.startswith(("no metrics", "no profiles", "no traces"))]
    if left_out:
        _say(f"{'TOLD' if len(reasons) == len(left_out) else 'WRONG'} {mode}: without {', '.join(sorted(left_out))}")
    for line in said:
        _say(f"  {line}")
    return None


@contextmanager
def _warnings() -> Iterator[list[str]]:
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("otel_gpu")
    log.addHandler(handler)
    try:
        yield said
    finally:
        log.removeHandler(handler)


def _show(refused: OtelGpuError) -> None:
    _say(str(refused))
    if isinstance(refused, LoadError):
        for line in refused.verifier_log.splitlines()[-80:]:
            _say(f"  {line}")


def _say(text: str) -> None:
    print(f"check: {os.uname().release} {text}", flush=True)


if __name__ == "__main__":
    main()
