"""Chromium without a window, driven through chromedriver's WebDriver protocol with the standard library alone."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


class BrowserMissing(Exception):
    """Chromium or chromedriver is not installed."""


class Browser:
    """One session: pages, scripts, device settings, screenshots and the console."""

    def __init__(self, address: str, session: str) -> None:
        self.base = f"{address}/session/{session}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return request(method, self.base + path, body)

    def open(self, url: str) -> None:
        """Load a page, as if it had not been open before."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns; `arguments` are its arguments."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def window(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Size in CSS pixels, narrower than a real window could be, and the colour scheme."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = "dark" if dark else "light"
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str) -> None:
        """A key press for whatever has the focus."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def console(self) -> list[str]:
        """Messages of warning or worse since the last call."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def request(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    """One WebDriver command; the message of the driver in the error."""
    data = None if body is None else json.dumps(body).encode()
    order = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(order, timeout=600) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        with error:
            message = json.loads(error.read())["value"]["message"]
        raise RuntimeError(f"{method} {url}: {message.splitlines()[0]}") from None


def _driver_port(log: Path, process: subprocess.Popen[bytes]) -> int:
    for _ in range(3000):
        found = re.search(r"started successfully on port (\d+)", log.read_text(errors="replace"))
        if found:
            return int(found.group(1))
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"chromedriver did not start: {log.read_text(errors='replace')[-300:]}")


def installed() -> tuple[str, str]:
    """Paths of the browser and its driver; BrowserMissing where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        raise BrowserMissing("chromium and chromedriver are needed (Debian packages chromium, chromium-driver)")
    return browser, driver


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser with an empty profile, on a port that the driver chooses; everything is gone afterwards."""
    browser, driver = installed()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        environment = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        with log.open("wb") as output:
            process = subprocess.Popen([driver, "--port=0"], stdout=output, stderr=output, env=environment)
        try:
            address = f"http://127.0.0.1:{_driver_port(log, process)}"
            options = {"args": [*OPTIONS, f"--user-data-dir={folder}/profile"], "binary": browser}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            session = request("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
            try:
                yield Browser(address, session["sessionId"])
            finally:
                request("DELETE", f"{address}/session/{session['sessionId']}")
        finally:
            process.terminate()
            process.wait(timeout=200)
