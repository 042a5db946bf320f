"""Is the flame graph's file whole, honest and harmless? What a browser makes of it is tested end to end."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from otel_gpu.exporters.recordings.flame_tree import flame_tree
from otel_gpu.exporters.recordings.html import encode_html, encode_html_difference
from otel_gpu.signals.profiles import CPU, GPU_INUSE_SPACE, GPU_LAUNCHES, ProfileBuilder
from tests.unit.profile_examples import START_NS, hostile, python, resource, training


def data_of(page: str):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def elements(page: str):
    parser = Elements()
    parser.feed(page)
    return parser.found


def test_a_tree_merges_lines_of_a_function_and_remembers_them():
    tree = flame_tree([training()])

    step = next(n for n in tree.nodes if n.key[1] == "train_step")
    assert sum(n.key[1] == "train_step" for n in tree.nodes) == 1
    assert step.lines == {41: 28_800, 44: 25_600, 47: 5_600}
    assert step.values == [60_000]


def test_every_node_is_at_least_the_sum_of_its_children():
    nodes = flame_tree([training(), training(skip="copy_kernel")]).nodes

    children = [[0, 0] for _ in nodes]
    for i, node in enumerate(nodes[1:], 1):
        assert node.parent < i
        for column in (0, 1):
            children[node.parent][column] += node.values[column]
    assert all(
        c <= v for node, sums in zip(nodes, children, strict=True) for v, c in zip(node.values, sums, strict=True)
    )


def test_the_smallest_frames_of_a_huge_tree_are_left_out_and_counted():
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    for i in range(300):
        builder.add((python(f"leaf_{i}", 1), python(f"root_{i % 30}", 1)), i + 1)

    tree = flame_tree([builder.build(START_NS)], max_nodes=100)

    assert (len(tree.nodes), tree.left_out) == (100, 231)
    assert tree.nodes[0].values == [300 * 301 // 2]
    assert all(node.parent < i for i, node in enumerate(tree.nodes))


def test_very_deep_stacks_need_no_recursion():
    builder = ProfileBuilder(GPU_LAUNCHES, resource(), START_NS)
    builder.add(tuple(python(f"f{i}", 1) for i in range(5000)), 1)

    page = encode_html([builder.build(START_NS)])

    assert len(data_of(page)["graphs"][0]["columns"]["parent"]) == 5001


def test_the_page_carries_its_data_and_totals():
    profiles = [training(), training(GPU_INUSE_SPACE, scale=1024), training(CPU, pid=2)]

    graphs = data_of(encode_html(profiles))["graphs"]

    assert [g["totals"] for g in graphs] == [[p.total] for p in profiles]
    assert [g["truncated"] for g in graphs] == [[p.truncated] for p in profiles]
    assert [g["title"] for g in graphs] == ["Kernel launches", "GPU memory in use", "On-CPU samples"]
    assert [g["process"] for g in graphs] == ["train (4711)", "train (4711)", "train (2)"]
    assert graphs[2]["nanosecondsEach"] == CPU.period


def test_a_difference_has_both_columns_and_says_when_lengths_differ():
    before, after = training(skip="copy_kernel"), training(pid=9)
    longer = type(after)(after.type, after.resource, after.samples, after.start_ns, 2 * after.duration_ns)

    (graph,) = data_of(encode_html_difference([before], [longer]))["graphs"]

    assert graph["differential"] is True
    assert graph["totals"] == [before.total, after.total]
    assert "30.0 s and 60.0 s" in graph["notes"][0]


def test_the_page_loads_nothing():
    found = elements(encode_html([training()]))

    assert not [attrs for _, attrs in found if {"src", "href", "data"} & set(attrs)]
    policy = next(a["content"] for t, a in found if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_hostile_names_add_no_element_and_stay_bounded():
    harmless, harmful = encode_html([training()]), encode_html([hostile()])

    assert elements(harmful) == elements(harmless)
    assert len(harmful) < len(harmless) + 60_000
    assert "\u2028" not in harmful
    harmful.encode()


def test_nothing_recorded_is_still_a_page():
    assert data_of(encode_html([]))["graphs"] == []
    assert data_of(encode_html([ProfileBuilder(GPU_LAUNCHES, resource(), START_NS).build(START_NS)]))["graphs"]
