"""How is a command run as another user, with these capabilities and no others? By util-linux's unshare and setpriv."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_gpu.runtime.privileges import Capability
from tests.e2e import ground

_ROOT = Path(__file__).parent.parent.parent

# Directories that are closed to others, such as /root, are covered by an open one that shows what is needed of them.
_SCRIPT = """
set -e
user=$1 capabilities=$2; shift 2
while [ "$1" != -- ]; do
    closed=$1 shown=$2; shift 2
    aside=$(mktemp -d)
    mount --rbind "$closed" "$aside"
    mount -t tmpfs -o mode=755 none "$closed"
    for one in $shown; do
        mkdir -p "$closed/$one"
        mount --rbind "$aside/$one" "$closed/$one"
    done
    umount -l "$aside"
    rmdir "$aside"
done
shift
exec setpriv --reuid="$user" --regid="$user" --clear-groups --bounding-set="$capabilities" --inh-caps="$capabilities" \
    --ambient-caps="$capabilities" "$@"
"""


def prefix(user: int, capabilities: Collection[Capability] = ()) -> list[str]:
    """Return what to put before a command."""
    names = ",".join(["-all", *(f"+{c.name.removeprefix('CAP_').lower()}" for c in capabilities)])
    shell = ["unshare", "--mount", "--propagation", "private", "bash", "-c", _SCRIPT, "as", str(user), names]
    return [*shell, *_opened(), "--"]


def _opened() -> Iterator[str]:
    """Yield closed directories, each followed by what of it a command of this tree needs."""
    needed: dict[Path, list[str]] = {}
    for path in {Path(sys.base_prefix), Path(sys.prefix), _ROOT, ground.part("mock"), ground.part("programs")}:
        closed = next((p for p in reversed(path.parents) if not p.stat().st_mode & 1), None)
        if closed is not None:
            needed.setdefault(closed, []).append(str(path.relative_to(closed)))
    for closed, shown in needed.items():
        yield str(closed)
        yield " ".join(sorted(shown))


@contextmanager
def meeting_place() -> Iterator[Path]:
    """Make a directory in which every user may write; pytest's are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="otel-gpu-test-"))
    directory.chmod(0o1777)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
