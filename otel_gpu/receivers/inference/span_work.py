"""Where does this process say which span of its own tracing is current? Worked out by a child, from its files and memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ...errors import OtelGpuError
from ...sandbox.confinement import Limits
from ...sandbox.elf import ElfFile
from ...sandbox.elf_thread_locals import STT_TLS, ThreadLocal, find_exported, place_of
from ...sandbox.memory import MemoryFault, MemoryFiles
from ...sandbox.work import OpenFile, work
from ...signals.structs import Frozen
from ...stacks.cpython.current_span import CurrentSpan, current_span
from ...stacks.cpython.layout import DEBUG_OFFSETS_SIZE, UnsupportedPythonError, layout_for
from ...stacks.cpython.objects import PythonObjects, PythonSymbols
from ...stacks.cpython.symbols import GET_VERSION, RUNTIME, VERSION
from ...stacks.cpython.version import version_of
from .follow_work import Image

_log = logging.getLogger(__name__)

LOOKING = Limits(answer_s=10.0, cpu_s=20, memory_bytes=512 << 20, answer_bytes=1 << 20)
PUBLISHED = "otel_thread_ctx_v1"
"""The variable of OTEP 4947: a pointer to the thread's context record."""
_OTHER_LIBC = b"ld-musl"
_SYMBOLS = {
    "_PyRuntime": "runtime",
    "PyDict_Type": "dict_type",
    "PyModule_Type": "module_type",
    "PyUnicode_Type": "unicode_type",
    "PyTuple_Type": "tuple_type",
    "PyCode_Type": "code_type",
    "PyContextVar_Type": "context_variable_type",
    "_Py_TrueStruct": "true_object",
}


class SpanRequest(Frozen):
    """What is looked at: images in the order of the files behind the three that show the memory."""

    images: tuple[Image, ...]
    pythons: tuple[int, ...]
    """Which of them may be the interpreter."""
    modules: int = 0
    """Where the interpreter's modules were found before."""


class SpanPlaces(Frozen):
    """What is known of a process."""

    published: ThreadLocal | None = None
    span: CurrentSpan | None = None
    modules: int = 0
    silent: tuple[int, ...] = ()
    """Images that publish nothing, and never will."""
    reason: str = ""


@work(SpanRequest, SpanPlaces)
def look_for_spans(files: Sequence[OpenFile], request: SpanRequest) -> Iterator[SpanPlaces]:
    """Yield where one process says which span is current: its memory's files, then its images."""
    shown, images = MemoryFiles.opened(files[:3]), files[3:]
    published: ThreadLocal | None = None
    silent: list[int] = []
    span: CurrentSpan | None = None
    modules, reason = request.modules, ""
    is_other_libc = any(_OTHER_LIBC in image.path for image in request.images)
    for number, (file, image) in enumerate(zip(images, request.images, strict=True)):
        if file.descriptor < 0:
            continue
        try:
            elf = ElfFile.of(file, file.path)
            bias = image.start - elf.code_vaddr(image.offset)
            found = find_exported(elf, PUBLISHED)
            if found is None or found[1].type != STT_TLS:
                silent.append(number)
            elif published is None and not is_other_libc:
                published = place_of(elf, bias, *found, shown.memory)
            if span is None and number in request.pythons and find_exported(elf, RUNTIME) is not None:
                objects = _objects(elf, bias, shown)
                if not modules or not objects.is_modules(modules):
                    modules = objects.modules()
                span = current_span(objects, modules)
        except UnsupportedPythonError as e:
            reason = str(e)
        except (MemoryFault, OtelGpuError) as e:
            # It may be in the middle of what it does: it is looked at again.
            _log.debug("%s: %s", image.path, e)
    yield SpanPlaces(published, span, modules, tuple(silent), reason)


def _objects(elf: ElfFile, bias: int, shown: MemoryFiles) -> PythonObjects:
    wanted = {*_SYMBOLS, VERSION, GET_VERSION}
    symbols = {s.name: s for s in elf.symbols() if s.name in wanted}
    if not _SYMBOLS.keys() <= symbols.keys():
        raise UnsupportedPythonError(f"{elf.path}: this interpreter does not export its types")
    version, _ = version_of(elf, symbols)
    runtime = symbols[RUNTIME]
    offsets = elf.read_vaddr(runtime.value, min(DEBUG_OFFSETS_SIZE, runtime.size)) if version >= (3, 13) else None
    places = {field: symbols[name].value + bias for name, field in _SYMBOLS.items()}
    return PythonObjects(shown.memory, layout_for(version, offsets), PythonSymbols(**places))
