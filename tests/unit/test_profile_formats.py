"""Do pprof, folded and speedscope say what the profile says?"""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gpu.errors import ConfigError
from otel_gpu.exporters.recordings.folded import encode_folded, encode_folded_difference
from otel_gpu.exporters.recordings.pprof import encode_pprof
from otel_gpu.exporters.recordings.pprof_schema import profile_class
from otel_gpu.exporters.recordings.speedscope import encode_speedscope
from otel_gpu.signals.frame_names import clean, label
from otel_gpu.signals.profiles import (
    GPU_ALLOC_SPACE,
    GPU_LAUNCHES,
    GPU_WAIT,
    Frame,
    FrameKind,
    ProfileBuilder,
    difference,
)
from tests.unit.profile_examples import CUDA, START_NS, hostile, kernel, native, resource, training


def pprof(profiles):
    return profile_class().FromString(gzip.decompress(encode_pprof(profiles)))


def test_pprof_holds_one_value_for_each_type():
    space, launches = training(GPU_ALLOC_SPACE, scale=512), training(skip="fill_kernel")

    message = pprof([space, launches])

    strings = message.string_table
    assert [(strings[t.type], strings[t.unit]) for t in message.sample_type] == [
        ("gpu_alloc_space", "bytes"),
        ("gpu_launches", "count"),
    ]
    assert len(message.sample) == len(space.samples)
    assert [sum(s.value[i] for s in message.sample) for i in (0, 1)] == [space.total, launches.total]
    assert message.period == 1
    assert message.duration_nanos == 30_000_000_000


def test_pprof_ids_are_consistent():
    message = pprof([training(), hostile()])

    functions = {f.id for f in message.function}
    mappings = {m.id for m in message.mapping}
    locations = {x.id for x in message.location}
    assert 0 not in functions | mappings | locations
    assert all(x.mapping_id in mappings | {0} for x in message.location)
    assert all(line.function_id in functions for x in message.location for line in x.line)
    assert all(i in locations for s in message.sample for i in s.location_id)
    assert message.string_table[0] == ""
    assert len(set(message.string_table)) == len(message.string_table)


def test_pprof_names_the_profile_after_the_executable_and_keeps_links():
    message = pprof([training()])

    strings = message.string_table
    assert strings[message.mapping[0].filename] == "/usr/bin/python3.11"
    assert strings[message.mapping[0].build_id] == "aa" * 20
    labels = {strings[x.key]: strings[x.str] or x.num for s in message.sample for x in s.label}
    assert labels["trace_id"] == "0102030405060708090a0b0c0d0e0f10"
    assert labels["thread.id"] == 4711


def test_pprof_names_the_profile_after_a_file_where_the_executable_is_not_found():
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    builder.add((kernel("gemm"), native("cuLaunchKernel", 0x4210, CUDA)), 1)

    message = pprof([builder.build(START_NS)])

    assert message.string_table[message.mapping[0].filename] == CUDA.path


def test_pprof_keeps_processes_apart():
    message = pprof([training(pid=1), training(pid=2)])

    strings = message.string_table
    functions = {f.id: strings[f.name] for f in message.function}
    outermost = {x.id: functions[x.line[0].function_id] for x in message.location if x.line}
    assert {outermost[s.location_id[-1]] for s in message.sample} == {"train (1)", "train (2)"}


def test_pprof_leaves_unsymbolised_frames_to_be_looked_up():
    message = pprof([training()])

    secret = next(m for m in message.mapping if message.string_table[m.filename].endswith("libsecret.so"))
    assert not secret.has_functions
    assert [x.address for x in message.location if x.mapping_id == secret.id and not x.line] == [0x5ABC0, 0x7FE0]


def test_folded_lines_are_root_first_and_add_up():
    profile = training()

    lines = encode_folded([profile]).splitlines()

    split = [line.rsplit(" ", 1) for line in lines]
    assert sum(int(value) for _, value in split) == profile.total
    assert split[0][0].startswith("_start;<module>;main;train_step;Transformer.forward;")
    assert split[0][0].endswith("cuLaunchKernel;flash_fwd_kernel")
    assert any(";libsecret.so+0x5abc0;" in stack for stack, _ in split)


def test_folded_stays_one_line_a_stack_with_hostile_names():
    lines = encode_folded([hostile()]).split("\n")

    assert len(lines) == len(hostile().samples) + 1
    assert all(line.isprintable() and line.count(";") == 1 for line in lines[:-1])
    assert any(line.startswith("a:b�c�d�e�f") for line in lines)


def test_folded_difference_has_both_values():
    text = encode_folded_difference([training(skip="copy_kernel")], [training(scale=2, skip="fill_kernel")])

    values = {line.rsplit(" ", 2)[0].rsplit(";")[-1]: line.rsplit(" ", 2)[1:] for line in text.splitlines()}
    assert values["flash_fwd_kernel"] == ["9000", "18000"]
    assert values["copy_kernel"] == ["0", "2600"]
    assert values["fill_kernel"] == ["900", "0"]


def test_speedscope_says_the_same():
    profiles = [training(), training(GPU_WAIT), training(GPU_ALLOC_SPACE, pid=2)]

    document = json.loads(encode_speedscope(profiles))

    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert len({json.dumps(f) for f in frames}) == len(frames)
    assert [p["unit"] for p in document["profiles"]] == ["none", "nanoseconds", "bytes"]
    for encoded, profile in zip(document["profiles"], profiles, strict=True):
        assert encoded["type"] == "sampled"
        assert encoded["endValue"] == sum(encoded["weights"]) == profile.total
        assert len(encoded["samples"]) == len(encoded["weights"])
        assert all(0 <= i < len(frames) for stack in encoded["samples"] for i in stack)
    first = [frames[i]["name"] for i in document["profiles"][0]["samples"][0]]
    assert (first[0], first[-1]) == ("_start", "flash_fwd_kernel")
    assert {"name": "train_step", "file": "/app/train.py", "line": 41} in frames


def test_speedscope_refuses_a_difference():
    with pytest.raises(ConfigError, match="speedscope"):
        encode_speedscope([difference(training(scale=2), training())])


@given(st.text(), st.integers(1, 40))
def test_clean_text_is_printable_bounded_and_encodable(text, limit):
    cleaned = clean(text, limit)

    assert len(cleaned) <= limit
    assert cleaned.isprintable()
    cleaned.encode()
    if text.isprintable() and len(text) <= limit:
        assert cleaned == text


@settings(max_examples=30)
@given(st.builds(Frame, st.sampled_from(FrameKind), st.text(max_size=3), address=st.integers(0, 2)))
def test_every_frame_has_a_label(frame):
    assert label(frame)


def test_an_unnamed_frame_of_no_file_is_its_address():
    assert label(Frame(FrameKind.NATIVE, address=0x10)) == "0x10"
    assert label(Frame(FrameKind.NATIVE)) == "[unknown]"
