"""Does the suffix choose the format, and does a recording come back as it was?"""

from __future__ import annotations

import gzip
import json
import os
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.cli import main
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.exporters.profile_otlp import encode_profiles
from otel_gpu.reporters import reading as profile_read
from otel_gpu.reporters.files import SUFFIXES, check_output, check_suffix, write_difference, write_profile
from otel_gpu.reporters.flame_tree import flame_tree
from otel_gpu.reporters.pprof import encode_pprof
from otel_gpu.reporters.reading import read_profiles
from otel_gpu.signals.profiles import (
    CPU,
    GPU_ALLOC_OBJECTS,
    GPU_ALLOC_SPACE,
    GPU_LAUNCHES,
    Frame,
    FrameKind,
    ProfileBuilder,
    difference,
    marker,
    truncation,
)
from tests.unit.profile_examples import START_NS, hostile, resource, training


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix_writes_its_format(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"

    left_out = write_profile([training(), training(GPU_ALLOC_SPACE)], path)

    start = path.read_bytes()[:20]
    expected = {
        ".pb.gz": b"\x1f\x8b",
        ".html": b"<!DOCTYPE html>",
        ".folded": b"_start;<module>;main",
        ".otlp.json": b'{"resourceProfiles":',
        ".json": b'{"$schema":"https://',
    }[suffix]
    assert start.startswith(expected[:20])
    assert [t.name for t in left_out] == (["gpu_alloc_space"] if suffix == ".folded" else [])
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_takes_hostile_names_and_nothing(tmp_path, suffix):
    write_profile(hostile(), tmp_path / f"hostile{suffix}")
    write_profile([], tmp_path / f"nothing{suffix}")
    write_profile(ProfileBuilder(GPU_LAUNCHES, resource(), START_NS).build(START_NS), tmp_path / f"empty{suffix}")


def test_an_unknown_suffix_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"\.pb\.gz .*\.html .*\.folded .*\.otlp\.json .*\.json") as raised:
        check_suffix("profile.txt")

    assert raised.value.exit_code == 2


def test_otlp_json_comes_back_unchanged(tmp_path):
    profiles = [training(), training(CPU.every(1000)), training(pid=2)]

    write_profile(profiles, tmp_path / "a.otlp.json")

    # One resource holds its types together, so that the order may change.
    read = read_profiles(tmp_path / "a.otlp.json")
    assert sorted(read, key=repr) == sorted(profiles, key=repr)
    document = json.loads((tmp_path / "a.otlp.json").read_text())
    assert document["dictionary"]["linkTable"][1]["traceId"] == "0102030405060708090a0b0c0d0e0f10"


def test_pprof_comes_back_with_stacks_and_values(tmp_path):
    space, objects = training(GPU_ALLOC_SPACE, scale=512), training(GPU_ALLOC_OBJECTS)

    write_profile([space, objects], tmp_path / "a.pb.gz")
    read = read_profiles(tmp_path / "a.pb.gz")

    assert [p.type for p in read] == [space.type, objects.type]
    assert [(p.total, p.truncated, p.duration_ns) for p in read] == [
        (p.total, p.truncated, p.duration_ns) for p in (space, objects)
    ]
    names = [[[f.function for f in s.stack] for s in p.samples] for p in (read[0], space)]
    assert names[0] == names[1]


def test_a_recording_in_two_formats_has_no_difference(tmp_path):
    stack = (
        Frame(FrameKind.CUDA, "gemm"),
        Frame(FrameKind.NATIVE, "cuMemAlloc"),
        Frame(FrameKind.KERNEL, "[kernel]"),
        Frame(FrameKind.CPYTHON, "made", "", 3),
        marker("[backward]"),
        *training().samples[0].stack,
        truncation("no unwinding table"),
    )
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    builder.add(stack, 7)
    for suffix in (".otlp.json", ".pb.gz"):
        write_profile(builder.build(START_NS + 1), tmp_path / f"a{suffix}")

    otlp, pprof = (read_profiles(tmp_path / f"a{suffix}")[0] for suffix in (".otlp.json", ".pb.gz"))

    assert [f.kind for f in pprof.samples[0].stack] == [f.kind for f in stack]
    root = flame_tree([otlp, pprof]).nodes
    assert len(root) == len(stack) + 1
    assert {tuple(node.values) for node in root} == {(7, 7)}


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    (
        ("{}", "", "before.otlp.json holds no profile"),
        (training(), training(GPU_ALLOC_SPACE), "have no type in common"),
    ),
)
def test_what_cannot_be_compared_is_said(tmp_path, capsys, before, after, complaint):
    paths = [tmp_path / f"{name}.otlp.json" for name in ("before", "after")]
    for path, content in zip(paths, (before, after)):
        if isinstance(content, str):
            path.write_text(content)
        else:
            write_profile(content, path)

    assert main(["record", "--diff", *map(str, paths), "-o", str(tmp_path / "a.html")]) == 2

    assert complaint in capsys.readouterr().err


def test_the_difference_of_two_recordings_can_be_drawn(tmp_path):
    write_profile(training(pid=1, skip="copy_kernel"), tmp_path / "before.otlp.json")
    write_profile(training(pid=2), tmp_path / "after.otlp.json")
    before, after = (read_profiles(tmp_path / f"{name}.otlp.json") for name in ("before", "after"))

    for suffix in (".html", ".folded", ".pb.gz", ".otlp.json"):
        assert write_difference(before, after, tmp_path / f"diff{suffix}") == ()

    (change,) = read_profiles(tmp_path / "diff.otlp.json")
    assert change == difference(training(skip="copy_kernel"), training(pid=2))
    assert change.total == 1300
    with pytest.raises(ConfigError, match="speedscope"):
        write_difference(before, after, tmp_path / "diff.json")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / "out.html"
    target.mkdir()

    with pytest.raises(OtelGpuError, match="cannot write"):
        write_profile(training(), target)

    assert os.listdir(tmp_path) == ["out.html"]
    with pytest.raises(OtelGpuError, match="another place"):
        write_profile(training(), tmp_path / "missing" / "out.html")


@pytest.mark.parametrize("name", ["a.otlp.json", "a.pb.gz", "a.html"])
def test_what_cannot_be_read_is_one_clear_error(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot read"):
        read_profiles(tmp_path / name)


def refusal(path) -> str | None:
    """Return why a file is refused, None when it is read; anything but a ConfigError is a failure."""
    try:
        read_profiles(path)
    except ConfigError as error:
        return str(error)
    return None


PPROF = gzip.decompress(encode_pprof([training()]))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(PPROF) - 1), st.integers(0, 255), st.integers(1, len(PPROF)))
def test_a_damaged_pprof_is_read_or_refused(tmp_path_factory, at, byte, length):
    damaged = bytearray(PPROF)
    damaged[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.pb.gz"
    path.write_bytes(gzip.compress(bytes(damaged[:length]), 1))

    assert "not a profile" in (refusal(path) or "not a profile")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_otlp_with_any_index_wrong_is_read_or_refused(tmp_path_factory, data):
    from otel_gpu.exporters.otlp_json import to_json

    request = encode_profiles([training()])
    sample = data.draw(st.sampled_from(list(request.resource_profiles[0].scope_profiles[0].profiles[0].samples)))
    index = data.draw(st.sampled_from([-1, -(2**31), 1, 50, 2**31 - 1]))
    field = data.draw(st.sampled_from(["stack_index", "link_index"]))
    setattr(sample, field, index)
    path = tmp_path_factory.getbasetemp() / "damaged.otlp.json"
    path.write_text(to_json(request))

    assert "index" in (refusal(path) or "index")


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(profile_read, "_MAX_UNPACKED_BYTES", 1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    (tmp_path / "bomb.pb.gz").write_bytes(packer.compress(bytes(1 << 22)) + packer.flush())

    with pytest.raises(ConfigError, match="unpacks to more"):
        read_profiles(tmp_path / "bomb.pb.gz")


@pytest.mark.parametrize("content", [b"", b"\n", b"[]", b"{}", b'{"resourceProfiles": 5}', b"[" * 100_000, b"\xff\xfe"])
def test_json_that_is_no_profile_is_refused_or_empty(tmp_path, content):
    (tmp_path / "a.otlp.json").write_bytes(content)

    assert "not a profile" in (refusal(tmp_path / "a.otlp.json") or "not a profile")


def test_resource_strings_in_the_dictionary_are_found(tmp_path):
    document = {
        "dictionary": {"stringTable": ["", "service.name", "train"]},
        "resourceProfiles": [
            {
                "resource": {"attributes": [{"keyStrindex": 1, "value": {"stringValueStrindex": 2}}]},
                "scopeProfiles": [{"profiles": [{"sampleType": {}}]}],
            }
        ],
    }
    (tmp_path / "a.otlp.json").write_text(json.dumps(document))

    (profile,) = read_profiles(tmp_path / "a.otlp.json")

    assert profile.resource.attributes == (("service.name", "train"),)


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_recorded(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no directory .*gone; make it"):
        check_output(tmp_path / "gone" / "a.html")
    (tmp_path / "a.html").mkdir()
    with pytest.raises(ConfigError, match="that is a directory; name a file in it"):
        check_output(tmp_path / "a.html")
