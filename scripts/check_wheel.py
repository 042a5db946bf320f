"""Does this wheel hold all that `pip install` needs? Fails when it does not.

The BPF objects of every architecture, a libbpf that loads from inside the wheel, and a platform tag that
auditwheel agrees with.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(path: str) -> None:
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as directory:
        names = wheel.namelist()
        sources = sorted(p.name.removesuffix(".bpf.c") for p in Path("ebpf").glob("*.bpf.c"))
        for arch in ("x86_64", "aarch64"):
            for source in sources:
                if f"otel_gpu/bpf/objects/{source}.{arch}.bpf.o" not in names:
                    sys.exit(f"{path}: no BPF object {source} for {arch}; run `make bpf` and build again")
        wheel.extractall(directory)
        library = ctypes.CDLL(os.path.join(directory, "otel_gpu/bpf/lib/libotelgpu_bpf.so"))
        library.libbpf_version_string.restype = ctypes.c_char_p
        version = library.libbpf_version_string().decode()
        ctypes.CDLL(os.path.join(directory, "otel_gpu/context/lib/libotelgpu_context.so"))
        with open("/proc/self/maps") as maps:
            if not any(directory in line and "libbpf.so" in line for line in maps):
                sys.exit(f"{path}: libbpf came from outside the wheel")
    report = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", path], capture_output=True, text=True, check=True
    ).stdout
    tag = path.rsplit("-", 1)[1].removesuffix(".whl")
    print(f"{path}: {len(sources)} programs, libbpf {version}, {tag}")
    print(report.strip())


if __name__ == "__main__":
    for wheel in sys.argv[1:]:
        main(wheel)
