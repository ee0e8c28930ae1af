"""Headless Chromium for tests of pages, driven by its debugging pipe; tests skip where there is none."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """A page of a browser: what it requests and writes to the console is kept."""

    def __init__(self, sent: int, received: int) -> None:
        self._sent, self._received, self._buffer, self._number = sent, received, b"", 0
        self.requests: list[str] = []
        self.console: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: object) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        return self._call(method, given, self._session)

    def open(self, url: str, width: int = 1400, scheme: str = "light") -> None:
        """Open a URL in a window of this width, with this colour scheme."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, after its promise."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true; between two documents it may be none."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"(() => {{ try {{ return {expression} }} catch {{ return false }} }})()"):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression}: {self.evaluate('document.body.innerText')[:500]}")
            time.sleep(0.05)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, given: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        message |= {} if session is None else {"sessionId": session}
        os.write(self._sent, json.dumps(message).encode() + b"\0")
        while True:
            read = self._read()
            if read.get("id") == self._number:
                if "error" in read:
                    raise RuntimeError(f"{method}: {read['error']}")
                return dict(read["result"])
            self._note(read)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            content = os.read(self._received, 1 << 16)
            if not content:
                raise EOFError("the browser has ended")
            self._buffer += content
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.console.append(str(given["args"]))
        elif event.get("method") == "Log.entryAdded":
            self.console.append(given["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.console.append(str(given["exceptionDetails"]))


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """Start a browser with one page."""
    to_read, sent = os.pipe()
    received, to_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        options += ["--no-first-run", f"--user-data-dir={folder}", "--remote-debugging-pipe"]
        command = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(CHROMIUM), *options],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            yield Page(sent, received)
        finally:
            process.kill()
            process.wait()
            os.close(sent)
            os.close(received)
