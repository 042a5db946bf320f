"""What does `python -m bench` do? The same as bench/run.py."""

from __future__ import annotations

import sys

from bench.run import main

sys.exit(main())
