"""A browser, driven through its WebDriver: as much of the protocol as tests need, without
another dependency.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One headless window; what it asks of other machines goes to a proxy that is not there."""

    def __init__(self, width: int = 1280, height: int = 900, folder: Path | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._root = f"http://127.0.0.1:{port}"
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--window-size={width},{height}",
            "--proxy-server=127.0.0.1:9",
            "--proxy-bypass-list=127.0.0.1",
        ]
        wanted = {"goog:chromeOptions": {"args": arguments, "binary": BROWSER}}
        body = {"capabilities": {"alwaysMatch": wanted}}
        for _ in range(100):
            try:
                found = self._call("POST", "/session", body)
                break
            except OSError:
                time.sleep(0.2)
        self._root += f"/session/{found['sessionId']}"

    def _call(self, method: str, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._root + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: object) -> object:
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, seconds: float = 300.0) -> object:
        """Return what a script gives, once that is something: as soon as it is, whatever the
        machine's speed.
        """
        end = time.monotonic() + seconds
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.1)
        return found

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def _find(self, selector: str) -> str:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return found[_ELEMENT]

    def narrow(self, width: int) -> None:
        """Show the page as on a screen of this width, which a window cannot have below 500."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call(
            "POST",
            "/goog/cdp/execute",
            {"cmd": "Emulation.setDeviceMetricsOverride", "params": size},
        )

    def picture(self) -> bytes:
        return base64.b64decode(self._call("GET", "/screenshot"))

    def close(self) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._process.terminate()
            self._process.wait()
