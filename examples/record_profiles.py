"""Which code launches more kernels now than a moment ago? Two recordings of a process, and their difference.

Run: sudo .venv/bin/python examples/record_profiles.py PID DIRECTORY [SECONDS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from otel_gpu import OtelGpuError, Recorder, profiles


def main(pid: int, directory: Path, seconds: float) -> None:
    recordings = []
    for name in ("before", "after"):
        with Recorder(pid, types=("launch", "cpu")) as recorder:
            time.sleep(seconds)
        recordings.append(recorder.stop())
        profiles.write(recordings[-1], directory / f"{name}.html")
    for profile in profiles.diff(*recordings):
        print(f"{profile.type.title}: {profile.total:+,} {profile.type.unit}")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 5)
    except (IndexError, ValueError):
        sys.exit(f"usage: {sys.argv[0]} PID DIRECTORY [SECONDS]")
    except OtelGpuError as error:
        sys.exit(str(error))
