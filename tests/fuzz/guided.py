"""Look for inputs that break one parser, led by which code they reach: `python -m tests.fuzz.guided TARGET [libFuzzer's options]`.

Needs Atheris (`make fuzz` installs it). What is found is written to where `-artifact_prefix` says.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris


def main() -> None:
    """Run one target until libFuzzer's limits, or a finding, end it."""
    # The agent's code is imported here only, so that all of it tells where it has been.
    with atheris.instrument_imports(include=["otel_gpu"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[sys.argv[1]]
    corpus = Path(os.environ["FUZZ_CORPUS"]) / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    known = [*target.seeds(), *(path.read_bytes() for path in target.findings())]
    for number, data in enumerate(known):
        (corpus / f"seed-{number}").write_bytes(data)
    options = [f"-max_len={target.max_bytes}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, *sys.argv[2:], str(corpus)], target.execute)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
