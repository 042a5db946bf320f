from __future__ import annotations

import io
from pathlib import Path

import pytest

from otel_gpu.errors import ConfigError
from otel_gpu.exporters.recordings.call_sites import top_call_sites
from otel_gpu.exporters.recordings.output import FORMATS, Output
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.signals.metrics import Resource
from otel_gpu.signals.profiles import (
    GPU_ALLOC_SPACE,
    GPU_LAUNCHES,
    GPU_WAIT,
    FileMapping,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    marker,
)

_KERNEL = Frame(FrameKind.CUDA, "gemm")
_DRIVER = Frame(FrameKind.NATIVE, "cuLaunchKernel", mapping=FileMapping("/usr/lib/libcuda.so.1"))
_RUNTIME = Frame(FrameKind.NATIVE, "cudaLaunchKernel", mapping=FileMapping("/usr/lib/libcudart.so.12"))
_LIBRARY = Frame(FrameKind.NATIVE, "at::mm", mapping=FileMapping("/usr/lib/libtorch.so"))
_PYTHON = Frame(FrameKind.CPYTHON, "step", "/home/a/train.py", 41)
_UNREAD = Frame(FrameKind.CPYTHON, "[unreadable Python frame: gone]")


def _profile(kind: ProfileType, *samples: tuple[tuple[Frame, ...], int]) -> Profile:
    builder = ProfileBuilder(kind, Resource(()), 0)
    for stack, value in samples:
        builder.add(stack, value)
    return builder.build(1)


class TestCallSites:
    @pytest.mark.parametrize(
        ("stack", "name"),
        [
            ((_KERNEL, _DRIVER, _RUNTIME, _LIBRARY, _PYTHON), "step (train.py:41)"),
            ((_KERNEL, _DRIVER, _RUNTIME, _LIBRARY), "at::mm (libtorch.so)"),
            ((_KERNEL, _DRIVER, _LIBRARY, _UNREAD), "at::mm (libtorch.so)"),
            ((_KERNEL, _DRIVER), "cuLaunchKernel (libcuda.so.1)"),
            ((marker("[not sampled]"),), "[not sampled]"),
            ((), "code that is not known"),
        ],
    )
    def test_a_site_is_what_a_reader_would_look_for(self, stack: tuple[Frame, ...], name: str) -> None:
        total, (site,) = top_call_sites([_profile(GPU_LAUNCHES, (stack, 3))])

        assert (total, site.name, site.value, site.share) == (3, name, 3, 1.0)

    def test_the_largest_come_first_and_no_more_than_asked_for(self) -> None:
        lines = [_PYTHON._replace(line=n) for n in range(1, 9)]
        profile = _profile(GPU_LAUNCHES, *(((_KERNEL, line), line.line) for line in lines), ((_DRIVER, lines[0]), 100))

        total, sites = top_call_sites([profile], 2)

        assert total == 136
        assert [(s.name, s.value) for s in sites] == [("step (train.py:1)", 101), ("step (train.py:8)", 8)]


class TestOutput:
    def test_a_format_that_holds_one_type_gets_a_file_for_each_in_the_order_asked_for(self, tmp_path: Path) -> None:
        out = Output.asked(str(tmp_path / "a.folded"))
        profiles = [_profile(GPU_ALLOC_SPACE, ((_PYTHON,), 4096)), _profile(GPU_LAUNCHES, ((_KERNEL, _PYTHON), 7))]

        written = out.write(profiles, (GPU_WAIT, GPU_LAUNCHES, GPU_ALLOC_SPACE))

        second = str(tmp_path / "a.gpu_alloc_space.folded")
        assert written == [(out.name, (GPU_LAUNCHES,)), (second, (GPU_ALLOC_SPACE,))]
        assert [p.total for name, _ in written for p in read_profiles(Path(name))] == [7, 4096]

    def test_other_formats_hold_all_types_in_one_file(self, tmp_path: Path) -> None:
        out = Output.asked(str(tmp_path / "recorded"), "otlp")
        profiles = [_profile(GPU_ALLOC_SPACE, ((_PYTHON,), 4096)), _profile(GPU_LAUNCHES, ((_KERNEL, _PYTHON), 7))]

        assert out.write(profiles, (GPU_LAUNCHES, GPU_ALLOC_SPACE)) == [(out.name, (GPU_LAUNCHES, GPU_ALLOC_SPACE))]
        assert list(tmp_path.iterdir()) == [tmp_path / "recorded"]

    def test_the_standard_output_gets_folded_stacks_unless_a_format_is_named(self, capfdbinary) -> None:
        profile = _profile(GPU_LAUNCHES, ((_KERNEL, _PYTHON), 7))

        Output.asked("-").write([profile], (GPU_LAUNCHES,))
        assert capfdbinary.readouterr().out == b"step;gemm 7\n"
        Output.asked("-", "pprof").write([profile], (GPU_LAUNCHES,))
        assert capfdbinary.readouterr().out.startswith(b"\x1f\x8b")

    def test_lines_are_of_folded_stacks(self, capfdbinary) -> None:
        Output.asked("-", lines=True).write([_profile(GPU_LAUNCHES, ((_KERNEL, _DRIVER, _PYTHON), 7))], (GPU_LAUNCHES,))

        assert capfdbinary.readouterr().out == b"step (train.py:41);cuLaunchKernel (libcuda.so.1);gemm 7\n"
        with pytest.raises(ConfigError, match="--lines is about folded stacks"):
            Output.asked("a.html", lines=True)

    def test_what_cannot_be_written_there_is_said_before_the_recording(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ConfigError, match="folded stacks hold one type, and these are 2"):
            Output.asked("-").check((GPU_LAUNCHES, GPU_WAIT))
        with pytest.raises(ConfigError, match="cannot tell which format"):
            Output.asked("recorded")
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdout", terminal)
        with pytest.raises(ConfigError, match="pprof is no text for a terminal"):
            Output.asked("-", "pprof").check((GPU_LAUNCHES,))
        for name in FORMATS.keys() - {"pprof"}:
            Output.asked("-", name).check((GPU_LAUNCHES,))
