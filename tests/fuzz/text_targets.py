"""What strangers say: names, paths, variables, what the kernel lists of them, recordings, answers of receivers."""

from __future__ import annotations

import os
import struct

from otel_gpu.discovery.events import decode
from otel_gpu.discovery.gpus import Gpu, visible_devices
from otel_gpu.discovery.kfd import AmdGpu
from otel_gpu.discovery.process_context_work import decode_context
from otel_gpu.discovery.process_info import ProcessInfo
from otel_gpu.discovery.resource import identify
from otel_gpu.discovery.resource_variables import MAX_ATTRIBUTES, MAX_TOTAL, own_attributes
from otel_gpu.exporters.delivery.retry import retry_after_s
from otel_gpu.exporters.otlp.responses import accepted
from otel_gpu.exporters.otlp.rpc_status import read_status
from otel_gpu.exporters.recordings.folded import UNKNOWN, decode_folded
from otel_gpu.exporters.recordings.html import decode_html
from otel_gpu.exporters.recordings.reading import _from_otlp_json, _from_pprof
from otel_gpu.exporters.recordings.speedscope import decode_speedscope
from otel_gpu.receivers.cuda.kernel_names.kernels import printable
from otel_gpu.receivers.cuda.kernel_names.stub_map import MAX_NAME, clean_name
from otel_gpu.receivers.hip import devices as hip_devices
from otel_gpu.sandbox.mappings import mapped_file, parse_executable
from otel_gpu.stacks.cpython.layout import LineTable
from otel_gpu.stacks.cpython.lines import line_at
from otel_gpu.stacks.demangle.names import demangle, shorten
from otel_gpu.stacks.symbols.perf_map import MAX_NAME as MAX_MADE_NAME
from otel_gpu.stacks.symbols.perf_map import PerfMap
from otel_gpu.text import MAX_SHOWN, endpoint_without_credentials, escaped, one_line, without_credentials

from .target import Target

_MAX_DEMANGLED = 1 << 17
"""Twice what a parser may make of a name: a template's arguments stand in it and are left out in the end."""
_ESCAPE = 10
"""Characters of the longest escape."""
_GPUS = tuple(Gpu(n, f"GPU-0000000{n}-0000-0000-0000-000000000000", "H200") for n in range(3))
_MIG = (Gpu(0, "GPU-1", "H200", "", (Gpu(0, "MIG-1", "H200"),)), Gpu(1, "GPU-2", "A100"))
_SHAPED = (
    b"_Z4axpyPf", b"_ZN5torch4cuda6kernelIfLi4ELb1EEEvPT_S3_m", b"_ZZN1a1bEvENKUlvE_clEv", b"_ZN12_GLOBAL__N_11fILi3EEEvv",
    b"__nv_static_4_ab_c__Z1fv", b"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", b"_RNvCs1234_7mycrate3foo",
    b"_RINvNtC3std3mem8align_ofdE", b"_ZNSt6vectorIiSaIiEE9push_backERKi", b"_ZN9__gnu_cxx17__normal_iteratorIPKcSsEC1ERKS2_",
    b"_ZSt4moveIRSt10unique_ptrIiSt14default_deleteIiEEEONSt16remove_referenceIT_E4typeEOS5_",
    b"_ZN1fIXsr1gE1hEEEvDTcl1iEE", b"_Z1fIJidEEvDpT_", b"_RNvMC0INtC8arrayvec8ArrayVechKj7b_E3new",
)  # fmt: skip


def _text(data: bytes) -> str:
    return os.fsdecode(data)


def _demangle(data: bytes) -> None:
    name = _text(data)
    assert len(demangle(name)) <= max(_MAX_DEMANGLED, len(name))
    assert len(shorten(name)) <= max(_MAX_DEMANGLED, len(name))


def _perf_map(data: bytes) -> None:
    functions = PerfMap(lambda offset, size: data[offset : offset + size])
    for _ in range(2):
        functions.read_on()
        assert all(
            len(functions.name(address)) <= MAX_MADE_NAME for address in (0, 0x1000, 0x7F0000001010, (1 << 64) - 1)
        )


def _demangle_cpp(data: bytes) -> None:
    _demangle(b"_Z" + data)


def _demangle_rust(data: bytes) -> None:
    _demangle(b"_R" + data)


def _shown(data: bytes) -> None:
    text = _text(data)
    for shown in (escaped(text), one_line(text)):
        assert len(shown) <= MAX_SHOWN
        assert shown.isprintable()
    assert printable(text).isprintable()
    name = clean_name(data)
    assert len(name) <= MAX_NAME
    assert name.isascii()
    assert name.isprintable()


def _redaction(data: bytes) -> None:
    secret, _, text = _text(data).partition("\n")
    shown = without_credentials(text, [secret])
    # What hides a secret may be longer than the shortest that is hidden.
    assert len(shown) <= 4 * len(text) + 16
    endpoint_without_credentials(text)


def _maps(data: bytes) -> None:
    for row in parse_executable(data):
        assert mapped_file(1, row).shown.isprintable()


def _maps_path(data: bytes) -> None:
    """Name a file as a stranger may: nothing but a newline is escaped by the kernel."""
    path = b"/" + data.replace(b"\0", b"").replace(b"\n", rb"\012")
    found = list(parse_executable(b"1000-2000 r-xp 0 08:01 5      %s\n3000-4000 r-xp 0 08:01 6    /other\n" % path))
    assert [row[0] for row in found] == [0x1000, 0x3000]
    assert found[0][6] == path.replace(rb"\012", b"\n").removesuffix(b" (deleted)")


def _perf_event(data: bytes) -> None:
    # The kernel writes whole records; what is a stranger's is the name at the end.
    for kind in (3, 10):
        decode(kind, 1 << 13, struct.pack("<IIQQQIIQQII", 1, 1, 0, 4096, 0, 8, 1, 9, 0, 4, 0) + data + b"\0", 5)


def _process_info(data: bytes) -> None:
    parts = [_text(part) for part in data.split(b"\0")] + [""] * 5
    info = ProcessInfo(
        1, 2, parts[0][:15], parts[1], tuple(parts[5:]),
        (("OTEL_RESOURCE_ATTRIBUTES", parts[2]), ("OTEL_SERVICE_NAME", parts[3])), tuple(parts[4].splitlines()),
    )  # fmt: skip
    identity = identify(info, {"host.name": "here"}, {"k8s.node.name": "node"})
    assert dict(identity.resource.attributes)["host.name"] == "here"
    for key, value in identity.resource.attributes:
        assert isinstance(value, tuple) or (str(value).isprintable() and len(str(value)) <= 4096), key
    own = own_attributes(dict(info.variables), {"host.name": "here"})
    assert len(own.attributes) <= MAX_ATTRIBUTES
    assert sum(len(key) + len(str(value)) for key, value in own.attributes) <= MAX_TOTAL


def _process_context(data: bytes) -> None:
    own = own_attributes({}, {"host.name": "here"}, decode_context(data))
    assert len(own.attributes) <= MAX_ATTRIBUTES
    assert sum(len(key) + len(str(value)) for key, value in own.attributes) <= MAX_TOTAL
    assert "host.name" not in dict(own.attributes)


_SAID = b"\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01x\x0a\x07\x0a\x01n\x12\x02\x18\x07"
_CONTEXTS = [_SAID, b"\x0a" + bytes([len(_SAID)]) + _SAID]


def _visible_devices(data: bytes) -> None:
    first, second = (_text(part) for part in (data + b"\0").split(b"\0")[:2])
    environment = {"CUDA_VISIBLE_DEVICES": first, "NVIDIA_VISIBLE_DEVICES": second, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    for gpus in (_GPUS, _MIG):
        for in_container in (False, True):
            found = visible_devices(gpus, environment, in_container=in_container)
            assert found is None or len(found) <= 4
    environment = {"ROCR_VISIBLE_DEVICES": first, "HIP_VISIBLE_DEVICES": second}
    assert len(hip_devices.visible_devices(_AMD, environment)) <= len(_AMD)


_AMD = (AmdGpu(1, 0xA, 128), AmdGpu(2, 0xB, 129))


def _line_table(data: bytes) -> None:
    lasti = int.from_bytes(data[:2], "little", signed=True)
    for kind in LineTable:
        line = line_at(kind, data[2:], 7, lasti)
        assert line is None or 0 <= line < 1 << 31


def _pprof(data: bytes) -> None:
    _from_pprof(data)


def _otlp_json(data: bytes) -> None:
    _from_otlp_json(data)


_SPEEDSCOPE = (
    b'{"shared":{"frames":[{"name":"main","file":"a.py","line":3},{"name":"f"}]},"profiles":[{"type":"sampled","unit":'
    b'"seconds","name":"Kernel launches \xc2\xb7 train (7)","samples":[[0,1],[0]],"weights":[1.5,2]}]}'
)
_EVENTED = (
    b'{"shared":{"frames":[{"name":"f"}]},"profiles":[{"type":"evented","unit":"none","name":"x","startValue":0,'
    b'"events":[{"type":"O","frame":0,"at":1},{"type":"C","frame":0,"at":4}]}]}'
)
_GRAPH = (
    b'{"strings":["all","","f"],"kinds":["native","marker"],"processes":[[["process.pid","7"]]],"graphs":[{"title":"x",'
    b'"unit":"count","nanosecondsEach":0,"processIndex":0,"when":"2026-09-21 14:13:20 UTC","differential":false,'
    b'"durations":[5],"columns":{"parent":[-1,0],"kind":[1,0],"name":[0,2],"place":[1,1],"values":[[3,3]]}}]}'
)


def _folded(data: bytes) -> None:
    (profile,) = decode_folded(data, UNKNOWN)
    assert sum(len(sample.stack) for sample in profile.samples) <= len(data)


def _speedscope(data: bytes) -> None:
    decode_speedscope(data)


def _flame_graph(data: bytes) -> None:
    decode_html(b'<script type="application/json" id="data">' + data + b"</script>")


def _response(data: bytes) -> None:
    accepted(data, one_line)


def _rpc_status(data: bytes) -> None:
    status = read_status(data)
    assert status is None or status.retry_delay_s is None or status.retry_delay_s >= 0


def _retry_after(data: bytes) -> None:
    delay = retry_after_s(data.decode("latin-1"), 1.7e9)
    assert delay is None or 0 <= delay < 1e12


_MAPS = b"""55d0c0a00000-55d0c0a28000 r-xp 00002000 fe:00 131 /usr/bin/cat (deleted)
7f1c00000000-7f1c00001000 r-xp 00000000 00:00 0
7fffdc5f2000-7fffdc5f4000 r-xp 00000000 00:00 0 [vdso]
7f1c00002000-7f1c00003000 rwxp 0 08:1f 4294967299 /tmp/a\\012b /c
"""
_INFO = b"python3\0/usr/bin/python3\0team=a%20b,key=value,host.name=x,k8s.pod.uid=1\0shop\0" + (
    b"0::/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-"
    + b"0123456789abcdef" * 4
    + b".scope"
    b"\0python3\0-m\0train.py\0"
)
_PPROF = b"\x0a\x04\x08\x01\x10\x02\x12\x05\x0a\x01\x01\x12\x00\x32\x00\x32\x05count\x32\x04unit"
_OTLP_JSON = (
    b'{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"profileId":"00ff"}]}]}],"dictionary":{"stringTable":[""]}}'
)
TARGETS = (
    Target("demangle", _demangle, lambda: _SHAPED),
    Target("demangle_cpp", _demangle_cpp, lambda: [n[2:] for n in _SHAPED if n[:2] == b"_Z"], (), 512),
    Target("demangle_rust", _demangle_rust, lambda: [n[2:] for n in _SHAPED if n[:2] == b"_R"], (), 512),
    Target("perf_map", _perf_map, lambda: [b"7f0000001000 20 py::f:/a.py\n0x2000 0x0000000000000010 Lx;::run\n1000 10 new\n"]),
    Target("shown", _shown, lambda: [b"plain", "\x1b[31m\n\u202e\U0001f600".encode(), b"\xff\x80"]),
    Target("redaction", _redaction, lambda: [b"secret\nhttps://me:secret@host:4317/v1?key=secret it failed"]),
    # The kernel's own words are as they should be; where they are not, the child that reads them says so.
    Target("maps", _maps, lambda: [_MAPS], (ValueError,)),
    Target("maps_path", _maps_path, lambda: [b"tmp/a b\r1-2 r-xp 0 08:01 9 /c", b"x (deleted)"], (), 256),
    Target("perf_event", _perf_event, lambda: [b"/usr/lib/libcuda.so.1"], (), 512),
    Target("process_info", _process_info, lambda: [_INFO]),
    Target("process_context", _process_context, lambda: _CONTEXTS, (ValueError,)),
    Target("visible_devices", _visible_devices, lambda: [b"0,1,2\0all", b"GPU-0,MIG-1, 2\0none", b"-1,0x1\0GPU-1"], (), 512),
    Target("line_table", _line_table, lambda: [b"\4\0\x80\1\xf2\x0a\x81\3\4", b"\4\0\2\1\xff\x80\6\5"], (), 512),
    # Whoever reads a recording turns any exception into a message: what is tried is that it ends.
    Target("pprof", _pprof, lambda: [_PPROF], (Exception,)),
    Target("otlp_json", _otlp_json, lambda: [_OTLP_JSON], (Exception,)),
    Target("folded", _folded, lambda: [b"# from elsewhere\nmain;f(int, 4);[unknown] 12\nmain;entry_[k] 3.5\n"], (ValueError,)),
    Target("speedscope", _speedscope, lambda: [_SPEEDSCOPE, _EVENTED], (Exception,)),
    Target("flame_graph", _flame_graph, lambda: [_GRAPH], (Exception,)),
    Target("response", _response, lambda: [b"", b"\x0a\x08\x08\x05\x12\x04oops"], (), 512),
    Target("rpc_status", _rpc_status, lambda: [b"\x08\x0e\x12\x04busy\x1a\x2e\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x02\x0a\x00"], (), 512),
    Target("retry_after", _retry_after, lambda: [b"120", b"Wed, 21 Oct 2026 07:28:00 GMT"], (), 128),
)  # fmt: skip
