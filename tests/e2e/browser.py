"""How does a test look at a page that lives? A headless Chromium, told over a pipe by its DevTools protocol what to do."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable")
_ANSWER_S = 60.0
_TRIED = "(() => { try { const found = %s; return found && found.nodeType ? true : found; } catch { return null; } })()"


def find() -> str | None:
    """Return the browser's program; None where there is none."""
    return next((b for b in BROWSERS if shutil.which(b)), None)


class Browser:
    """One page. A context manager."""

    def __init__(self, directory: Path, *, size: tuple[int, int] = (1440, 900), dark: bool = False) -> None:
        program = find()
        assert program is not None
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self._in, self._out, self._numbers, self._rest = ours_in, ours_out, itertools.count(1), b""
        self.errors: list[str] = []
        """What the page's scripts complained of, and what its policy refused."""
        # The protocol's pipe is descriptors 3 and 4.
        command = ["/bin/bash", "-c", f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"', "bash", program]
        command += ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={directory}/browser", f"--window-size={size[0]},{size[1]}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = ""
        target = self._page()
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.look(size, dark=dark)

    def _page(self) -> str:
        deadline = time.monotonic() + _ANSWER_S
        while time.monotonic() < deadline:
            for target in self.call("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return str(target["targetId"])
            time.sleep(0.05)
        raise AssertionError("the browser has no page")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        # Asked to: what it started ends with it, and writes no more into its directory.
        self._session = ""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def look(self, size: tuple[int, int], *, dark: bool) -> None:
        """Have a window of a size, on a desktop that is light or dark."""
        width, height = size
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def go(self, url: str) -> None:
        """Open a page."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return what an expression is worth; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str, timeout_s: float = 60) -> Any:
        """Wait until an expression is true, and return it."""
        deadline = time.monotonic() + timeout_s
        while not (found := self.run(_TRIED % condition)):
            assert time.monotonic() < deadline, (condition, self.run("document.body.innerText"), self.errors)
            time.sleep(0.05)
        return found

    def press(self, key: str, code: str = "") -> None:
        """Press a key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            number = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}.get(key, ord(key[0].upper()))
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=number, **more
            )

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and return its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], _ANSWER_S)
            part = os.read(self._in, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = said["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
            case "Runtime.consoleAPICalled" if said["type"] == "error":
                self.errors.append(str([a.get("value", a.get("description")) for a in said["args"]]))
            case "Log.entryAdded" if said["entry"]["level"] == "error":
                self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
