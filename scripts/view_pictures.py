"""How are the pictures of the view made? From the demo, as a headless Chromium shows it: at two sizes, light and dark.

Root, after `make demo`: `.venv/bin/python -m scripts.view_pictures [DIRECTORY]`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.browser import Browser

_ROOT = Path(__file__).parent.parent
_WIDE, _NARROW = (1440, 900), (420, 900)
_ENOUGH_S = 75
"""So long the demo runs before the first picture: a chart with something in it."""
_FRAMES = "document.querySelector('iframe').contentDocument.querySelector('g.frame')"
_LONGEST = "[...document.querySelectorAll('tr')].find(r => r.innerText.includes('200')).querySelector('a').click()"
_PICTURES = (
    ("view-gpu", "gpu", _WIDE, False, "document.querySelectorAll('canvas').length >= 5"),
    ("view-gpu-narrow-dark", "gpu", _NARROW, True, "document.querySelectorAll('canvas').length >= 5"),
    ("view-flames-dark", "flames", _WIDE, True, _FRAMES),
    ("view-request-dark", "requests", _WIDE, True, "document.querySelectorAll('td a').length > 20"),
)


def main(directory: Path) -> None:
    command = [sys.executable, "-m", "otel_gpu", "demo", "--duration", "300"]
    with (
        subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as demo,
        tempfile.TemporaryDirectory() as place,
        Browser(Path(place)) as page,
    ):
        assert demo.stdout is not None
        url = next(found[1] for line in demo.stdout if (found := re.match(r"the view: (\S+)", line)))
        time.sleep(_ENOUGH_S)
        for name, part, size, dark, ready in _PICTURES:
            page.look(size, dark=dark)
            page.go("about:blank")
            page.go(f"{url}#{part}")
            page.until(ready)
            if name.startswith("view-gpu"):
                page.run("document.querySelector('#window button').click()")
            if part == "requests":
                page.run("[...document.querySelectorAll('.segments button')].find(b => b.value === 'duration').click()")
                page.until("document.querySelector('[aria-pressed=true][value=duration]')")
                time.sleep(1)
                page.run(_LONGEST)
                page.until("document.querySelector('.span button')")
                page.run("document.querySelector('.span button').click()")
            time.sleep(1.5)
            page.picture(directory / f"{name}.png")
            print(directory / f"{name}.png")
        demo.terminate()
        demo.stdout.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "docs" / "images")
