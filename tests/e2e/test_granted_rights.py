"""Which rights does the image's command have, where its container grants all of its file's capabilities, some, or none?"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_gpu.runtime import privileges
from otel_gpu.service.rights import SERVICE

_PYTHON = Path("/usr/bin/python3")
_TOLD = "import privileges; privileges.take_up(); print(*sorted(c.name for c in privileges.held()))"


@pytest.fixture
def interpreter() -> Iterator[Path]:
    """An interpreter with file capabilities, as the Dockerfile makes it."""
    setcap = shutil.which("setcap", path="/usr/sbin:/sbin:/usr/bin")
    if setcap is None or not _PYTHON.exists():
        pytest.skip("needs setcap and the distribution's python3: apt-get install libcap2-bin python3")
    place = Path(tempfile.mkdtemp(prefix="otel-gpu-"))
    try:
        place.chmod(0o755)
        shutil.copy(_PYTHON.resolve(), place / "python3")
        shutil.copy(str(privileges.__file__), place / "privileges.py")
        names = ",".join(sorted(capability.name.lower() for capability in SERVICE))
        subprocess.run([setcap, f"{names}=p", place / "python3"], check=True)
        yield place / "python3"
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("granted", [sorted(c.name for c in SERVICE), ["CAP_BPF"], []])
def test_the_command_takes_up_what_it_is_granted(interpreter: Path, granted: list[str]) -> None:
    bounding = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in granted)])
    user = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", f"--bounding-set={bounding}"]
    done = subprocess.run(
        [*user, interpreter, "-c", _TOLD], cwd=interpreter.parent, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == granted
