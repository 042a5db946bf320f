"""Does the suffix choose the format, and does a recording come back as it was?"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_gpu.cli import main
from otel_gpu.errors import ConfigError, OtelGpuError
from otel_gpu.exporters.recordings import reading as profile_read
from otel_gpu.exporters.recordings.files import (
    SUFFIXES,
    check_output,
    check_suffix,
    encode,
    write_difference,
    write_profile,
)
from otel_gpu.exporters.recordings.flame_tree import flame_tree
from otel_gpu.exporters.recordings.folded import decode_folded
from otel_gpu.exporters.recordings.pprof import encode_pprof
from otel_gpu.exporters.recordings.reading import read_profiles
from otel_gpu.exporters.wire.profiles_protobuf import encode_profiles
from otel_gpu.profiles import diff, read
from otel_gpu.signals.frame_names import label
from otel_gpu.signals.profiles import (
    CPU,
    GPU_ALLOC_SPACE,
    GPU_INUSE_SPACE,
    GPU_LAUNCHES,
    Frame,
    FrameKind,
    ProfileBuilder,
    difference,
    marker,
    merge,
    truncation,
)
from tests.unit.profile_examples import START_NS, hostile, resource, training

READ_AGAIN = tuple(suffix for suffix in SUFFIXES if suffix != ".svg")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix_writes_its_format(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"

    left_out = write_profile([training(), training(GPU_ALLOC_SPACE)], path)

    start = path.read_bytes()[:20]
    expected = {
        ".pb.gz": b"\x1f\x8b",
        ".html": b"<!DOCTYPE html>",
        ".svg": b"<?xml version=",
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


def test_a_line_that_is_still_being_written_is_left_out(tmp_path):
    path = tmp_path / "profiles.jsonl"
    write_profile([training()], tmp_path / "a.otlp.json")
    line = json.dumps(json.loads((tmp_path / "a.otlp.json").read_text()))

    path.write_text(f"{line}\n{line[:1000]}")
    assert read_profiles(path) == read_profiles(tmp_path / "a.otlp.json")

    path.write_text(line)
    assert read_profiles(path) == read_profiles(tmp_path / "a.otlp.json")

    path.write_text(line[:1000])
    with pytest.raises(ConfigError, match="not a profile"):
        read_profiles(path)


def test_pprof_comes_back_with_stacks_and_values(tmp_path):
    space, launches = training(GPU_ALLOC_SPACE, scale=512), training(GPU_LAUNCHES)

    write_profile([space, launches], tmp_path / "a.pb.gz")
    read = read_profiles(tmp_path / "a.pb.gz")

    assert [p.type for p in read] == [space.type, launches.type]
    assert [(p.total, p.truncated, p.duration_ns) for p in read] == [
        (p.total, p.truncated, p.duration_ns) for p in (space, launches)
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


def stacks(profile, what=lambda frame: frame.function) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = {}
    for sample in profile.samples:
        key = tuple(map(what, sample.stack))
        found[key] = found.get(key, 0) + sample.value
    return found


def test_folded_stacks_come_back_with_their_names(tmp_path):
    write_profile(training(), tmp_path / "a.folded")

    (profile,) = read_profiles(tmp_path / "a.folded")
    (launches,) = read_profiles(tmp_path / "a.folded", GPU_LAUNCHES)

    assert (profile.type.name, launches.type) == ("unknown", GPU_LAUNCHES)
    assert profile.samples == launches.samples
    assert stacks(launches) == stacks(training(), label)
    assert launches.truncated == training().truncated > 0
    write_profile(launches, tmp_path / "again.folded")
    assert (tmp_path / "again.folded").read_bytes() == (tmp_path / "a.folded").read_bytes()


def test_speedscope_comes_back_with_types_processes_files_and_lines(tmp_path):
    written = [training(), training(GPU_ALLOC_SPACE), training(pid=2)]
    write_profile(written, tmp_path / "a.json")

    read = read_profiles(tmp_path / "a.json")

    assert [p.type for p in read] == [p.type for p in written]
    assert [dict(p.resource.attributes) for p in read] == [
        {"service.name": "train", "process.pid": pid} for pid in (4711, 4711, 2)
    ]
    for before, after in zip(written, read, strict=True):
        assert stacks(after) == stacks(before, label)
    assert ("train_step", "/app/train.py", 41) in {(f.function, f.filename, f.line) for f in read[0].samples[0].stack}
    write_profile(read, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "a.json").read_bytes()


def test_a_flame_graph_comes_back_with_what_it_draws(tmp_path):
    written = [training(CPU.every(1000)), training(GPU_ALLOC_SPACE, pid=2)]
    write_profile(written, tmp_path / "a.html")

    read = read_profiles(tmp_path / "a.html")

    assert [(p.type, p.resource, p.start_ns, p.duration_ns) for p in read] == [
        (p.type, p.resource, p.start_ns, p.duration_ns) for p in written
    ]
    for before, after in zip(written, read, strict=True):
        assert stacks(after, lambda f: (f.kind, f.function)) == stacks(before, lambda f: (f.kind, label(f)))
        trees = [flame_tree([p]).nodes for p in (before, after)]
        drawn = [sorted((node.key, node.values) for node in tree) for tree in trees]
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize("kind", ["sampled", "evented"])
def test_speedscope_files_of_other_tools_are_read_in_our_units(tmp_path, kind):
    document = {
        "shared": {"frames": [{"name": "main"}, {"name": "work", "file": "a.c", "line": 7}, {"name": "[idle]"}]},
        "profiles": [
            {
                "name": "Thread 7",
                "unit": "milliseconds",
                "startValue": 0,
                "endValue": 9,
                **{
                    "sampled": {"type": kind, "samples": [[0, 1], [0], [2]], "weights": [2.5, 1, 3]},
                    "evented": {
                        "type": kind,
                        "events": [
                            {"type": change, "frame": frame, "at": at}
                            for change, frame, at in (
                                ("O", 0, 1), ("O", 1, 1.5), ("C", 1, 4), ("C", 0, 4.5), ("O", 2, 6), ("C", 2, 9),
                            )
                        ],
                    },
                }[kind],
            }
        ],
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(document))

    (profile,) = read_profiles(tmp_path / "a.json")

    assert (profile.type.name, profile.type.unit) == ("Thread 7", "nanoseconds")
    assert stacks(profile) == {("work", "main"): 2_500_000, ("main",): 1_000_000, ("[idle]",): 3_000_000}
    assert profile.samples[-1].stack == (marker("[idle]"),)


def test_folded_stacks_of_other_tools_are_read(tmp_path):
    (tmp_path / "perf.folded").write_text(
        "# comment\nmain;do_idle_[k] 3\n\nmain;operator new(unsigned long) 2.5\n[no stack] 4\n"
    )

    (profile,) = read_profiles(tmp_path / "perf.folded")

    assert profile.samples[0].stack == (Frame(FrameKind.KERNEL, "do_idle"), Frame(FrameKind.NATIVE, "main"))
    assert stacks(profile) == {("do_idle", "main"): 3, ("operator new(unsigned long)", "main"): 2, (): 4}


@pytest.mark.parametrize("before", READ_AGAIN)
@pytest.mark.parametrize("after", READ_AGAIN)
def test_one_recording_in_any_two_formats_has_no_difference(tmp_path, before, after):
    recording = training()
    write_profile(recording, tmp_path / f"before{before}")
    write_profile(training(scale=2, skip="copy_kernel"), tmp_path / f"other{after}")
    write_profile(recording, tmp_path / f"after{after}")
    old, same, other = (
        read(tmp_path / name, GPU_LAUNCHES) for name in (f"before{before}", f"after{after}", f"other{after}")
    )

    (nothing,) = diff(old, same)
    (change,) = diff(old, other)

    assert nothing.samples == ()
    values = {sample.stack[0].function: sample.value for sample in change.samples}
    assert len(change.samples) == len(recording.samples)
    assert (values["flash_fwd_kernel"], values["copy_kernel"]) == (9_000, -1_300)


@pytest.mark.parametrize("suffix", READ_AGAIN)
def test_recordings_of_any_format_are_added_up_and_written_in_any_other(tmp_path, suffix):
    write_profile(training(), tmp_path / f"a{suffix}")
    (once,) = read(tmp_path / f"a{suffix}", GPU_LAUNCHES)

    (twice,) = merge([once, once])

    assert twice.total == 2 * training().total
    for other in READ_AGAIN:
        write_profile(twice, tmp_path / f"b{other}")
        (again,) = read(tmp_path / f"b{other}", GPU_LAUNCHES)
        assert stacks(again, label) == {stack: 2 * value for stack, value in stacks(training(), label).items()}


@pytest.mark.parametrize("suffix", READ_AGAIN)
def test_every_format_that_was_written_with_hostile_names_is_read(tmp_path, suffix):
    write_profile(hostile(), tmp_path / f"a{suffix}")

    (profile,) = read(tmp_path / f"a{suffix}")

    assert profile.total == hostile().total


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    (
        ("a.folded", "main;f 3 5\nmain;g 0 5\n", "compares two recordings"),
        ("a.folded", "main;f\n", "without a value"),
        ("a.html", "<html></html>", "no flame graph of otel-gpu"),
        ("a.json", "{}", "not a profile"),
        ("a.json", '{"shared":{"frames":[]},"profiles":[{"type":"sampled","unit":"none","name":"","samples":[[-1]],"weights":[1]}]}',
         "index -1"),
        ("a.txt", "", "should end in"),
    ),
)  # fmt: skip
def test_what_is_no_profile_of_its_format_is_refused(tmp_path, name, content, complaint):
    (tmp_path / name).write_text(content)

    assert complaint in (refusal(tmp_path / name) or "")


def test_a_flame_graph_of_two_recordings_is_not_read_as_one(tmp_path):
    write_difference(training(), training(scale=2), tmp_path / "a.html")

    assert "compares two recordings" in (refusal(tmp_path / "a.html") or "")


@pytest.mark.parametrize("name", ["a.folded", "a.json", "a.html"])
def test_a_small_file_cannot_ask_for_endless_stacks(tmp_path, monkeypatch, name):
    monkeypatch.setattr("otel_gpu.exporters.recordings.tables.MAX_FRAMES", 20)
    write_profile(training(), tmp_path / name)

    assert "more than 20 frames" in (refusal(tmp_path / name) or "")


def test_the_command_compares_any_formats(tmp_path):
    write_profile(training(skip="copy_kernel"), tmp_path / "before.folded")
    write_profile(training(), tmp_path / "after.json")
    paths = [str(tmp_path / name) for name in ("before.folded", "after.json")]

    assert main(["record", "--diff", *paths, "-o", str(tmp_path / "a.otlp.json")]) == 0

    (change,) = read_profiles(tmp_path / "a.otlp.json")
    assert [(s.stack[0].function, s.value) for s in change.samples] == [("copy_kernel", 1_300)]


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

    for suffix in (".html", ".svg", ".folded", ".pb.gz", ".otlp.json"):
        assert write_difference(before, after, tmp_path / f"diff{suffix}") == ()

    (change,) = read_profiles(tmp_path / "diff.otlp.json")
    assert change == difference(training(skip="copy_kernel"), training(pid=2))
    assert change.total == 1300
    with pytest.raises(ConfigError, match="speedscope"):
        write_difference(before, after, tmp_path / "diff.json")


@pytest.mark.parametrize("suffix", [".pb.gz", ".otlp.json"])
def test_recordings_of_other_length_are_compared_as_if_of_one(tmp_path, suffix):
    before = training(skip="copy_kernel")
    after = replace(training(scale=3), duration_ns=3 * before.duration_ns)
    write_profile(before, tmp_path / "before.otlp.json")
    write_profile(after, tmp_path / "after.otlp.json")
    paths = [str(tmp_path / f"{name}.otlp.json") for name in ("before", "after")]

    assert main(["record", "--diff", *paths, "-o", str(tmp_path / f"a{suffix}")]) == 0

    (change,) = read_profiles(tmp_path / f"a{suffix}")
    assert [(s.stack[0].function, s.value) for s in change.samples] == [("copy_kernel", 3 * 1_300)]


def test_what_is_there_at_a_moment_is_compared_as_it_is(tmp_path):
    before = training(GPU_INUSE_SPACE)
    after = replace(before, duration_ns=3 * before.duration_ns)

    write_difference(before, after, tmp_path / "a.otlp.json")

    assert [p.total for p in read_profiles(tmp_path / "a.otlp.json")] in ([], [0])


def test_the_command_says_what_changed_the_most_and_which_types_it_cannot_compare(tmp_path, capsys):
    before = [training(), training(GPU_ALLOC_SPACE)]
    after = replace(training(skip="copy_kernel"), duration_ns=2 * before[0].duration_ns)
    write_profile(before, tmp_path / "before.otlp.json")
    write_profile(after, tmp_path / "after.otlp.json")
    paths = [str(tmp_path / f"{name}.otlp.json") for name in ("before", "after")]

    assert main(["record", "--diff", *paths, "-o", str(tmp_path / "a.svg")]) == 0

    said = capsys.readouterr().err
    assert f"only in {paths[0]}: gpu memory allocated" in said
    assert "kernel launches, 2,073 -> 1,015 count/s, since one recording took longer:" in said
    assert "gone  DataLoader.__next__ (dataloader.py:733): 43.3 -> 0" in said
    assert main(["record", "--diff", *paths, "-o", str(tmp_path / "a.json")]) == 2
    assert "speedscope cannot show a difference" in capsys.readouterr().err


def test_folded_stacks_with_lines_come_back_with_them(tmp_path):
    write_profile(training(), tmp_path / "a.otlp.json")
    (tmp_path / "a.folded").write_bytes(encode([training()], ".folded", lines=True))
    lines = (tmp_path / "a.folded").read_text().splitlines()
    assert lines[0].startswith(
        "_start (python3.11);<module> (train.py:97);main (train.py:88);train_step (train.py:41);"
    )

    (profile,) = read_profiles(tmp_path / "a.folded", GPU_LAUNCHES)

    assert profile.total == training().total
    step = {f.line for s in profile.samples for f in s.stack if f.function == "train_step"}
    assert step == {41, 44, 47}
    # Of what both say everything is the same.
    write_difference(read_profiles(tmp_path / "a.otlp.json"), [profile], tmp_path / "d.otlp.json")
    assert [p.total for p in read_profiles(tmp_path / "d.otlp.json") if p.samples] == []


@given(st.text(), st.text(), st.integers(-1, 10**9 - 1))
@example(" ", "", 0)
def test_folded_stacks_with_lines_stay_one_line_whatever_names_hold(name, file, line):
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    builder.add((Frame(FrameKind.CPYTHON, name, file, line),), 5)

    data = encode([builder.build(START_NS)], ".folded", lines=True)

    assert len(data.decode().split("\n")) == 2
    assert [p.total for p in decode_folded(data, GPU_LAUNCHES)] == [5]


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
    from otel_gpu.exporters.wire.request_json import to_json

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
