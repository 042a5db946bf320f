"""Which kernels are in the files that a process's compilers keep? Looked for where its environment says, with its own rights."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ....errors import OtelGpuError
from ....sandbox.confinement import Limits
from ....sandbox.files import ProcessFile, ProcessFolders
from ....sandbox.parsers import Parsers
from ....sandbox.work import OpenFile, work

_log = logging.getLogger(__name__)
_PLACES = Limits(answer_s=2.0, cpu_s=5, memory_bytes=128 << 20, answer_bytes=1 << 20)
_KERNELS = Limits(answer_s=8.0, cpu_s=10, memory_bytes=512 << 20, answer_bytes=32 << 20)
_MAX_ENVIRONMENT = 1 << 20
_MAX_FILE = 16 << 20
_MAX_PATH = 4_096
_HOME = b"HOME"
_CACHES = (
    (b"CUPY_CACHE_DIR", b".cupy/kernel_cache"),
    (b"TRITON_CACHE_DIR", b".triton/cache"),
    (b"TRITON_HOME", None),
    (b"TORCHINDUCTOR_CACHE_DIR", None),
    (b"NUMBA_CACHE_DIR", None),
    (b"CUDA_CACHE_PATH", b".nv/ComputeCache"),
)
"""Where compilers keep what they made: the variable that says so, and the place in HOME otherwise."""


def kernels_in_caches(parsers: Parsers, pid: int) -> frozenset[str]:
    """Return the kernels in the files that a process's compilers keep; none where they cannot be read."""
    try:
        paths = next(parsers.run(cache_places, [ProcessFile(pid, "environ")], None, limits=_PLACES), [])
        if not paths:
            return frozenset()
        folders = ProcessFolders(pid, paths, _MAX_FILE)
        return next(parsers.run(kernels_below, [folders], None, limits=_KERNELS), frozenset())
    except OtelGpuError as e:
        _log.debug("the caches of the compilers of process %d: %s", pid, e)
        return frozenset()


@work(type(None), list[bytes])
def cache_places(files: Sequence[OpenFile], _: None) -> Iterator[list[bytes]]:
    """Yield where a process's compilers keep what they made, by its environment, which is the file."""
    environ = files[0].read(0, _MAX_ENVIRONMENT) if files[0].descriptor >= 0 else b""
    variables = dict(entry.split(b"=", 1) for entry in environ.split(b"\0") if b"=" in entry)
    home = variables.get(_HOME)
    places = [
        variables.get(name) or (home + b"/" + default if home and default is not None else b"")
        for name, default in _CACHES
    ]
    yield list(dict.fromkeys(place for place in places if place.startswith(b"/") and len(place) < _MAX_PATH))


@work(type(None), frozenset[str])
def kernels_below(files: Sequence[OpenFile], _: None) -> Iterator[frozenset[str]]:
    """Yield the kernels in files of device code."""
    from .device_names import names_in_files  # here, because the agent itself reads none

    yield names_in_files(file.read(0, min(file.size, _MAX_FILE)) for file in files if file.descriptor >= 0)
