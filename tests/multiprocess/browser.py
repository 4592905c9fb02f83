"""A headless Chromium that tests drive over its debugging pipe; it needs no driver and no port.

The browser resolves no name and works offline. What a page asks for and what it complains about is kept.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from harness import CASE_LIMIT_S

PROGRAM = shutil.which("chromium-headless-shell")
OPTIONS = [
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-smooth-scrolling",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]
FIRST_FREE_DESCRIPTOR = 10  # 3 and 4 are the browser's ends
# name: what the browser calls the key, its code, and the text that it types
KEYS: Dict[str, Tuple[str, int, str]] = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": (" ", 32, " "),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
}


class Page:
    """One tab. Its methods return when the browser has answered."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self._session = ""
        self._events: List[str] = []
        self.requests: List[str] = []  # addresses, since the last open()
        self.complaints: List[str] = []  # of the console, since the last open()
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")
        self._send("Network.emulateNetworkConditions", offline=True, latency=0, **dict.fromkeys(RATES, -1))

    def open(self, address: str, width: int = 1280, scheme: str = "light") -> None:
        """Loads the page in a window of that width, for readers who prefer that scheme."""
        self.requests, self.complaints, self._events = [], [], []
        self.look(width, scheme)
        told = self._send("Page.navigate", url=address)
        assert "errorText" not in told, told
        self._await("Page.loadEventFired")

    def look(self, width: int = 1280, scheme: str = "light", media: str = "") -> None:
        """Changes the window, the preferred scheme or the medium ("print") of the page that is open, and
        waits until it is drawn."""
        self._send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._send("Emulation.setEmulatedMedia", media=media, features=features)
        self.evaluate("new Promise((tell) => requestAnimationFrame(() => requestAnimationFrame(tell)))")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, as JSON has it."""
        told = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def press(self, name: str, shift: bool = False) -> None:
        """A key, down and up."""
        key, code, text = KEYS[name]
        given = {"key": key, "code": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self._send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **given)
        self._send("Input.dispatchKeyEvent", type="keyUp", **given)

    def point(self, x: float, y: float, click: bool = False) -> None:
        """Moves the mouse there, and clicks."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self) -> bytes:
        """All of the page, as PNG."""
        told = self._send("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(told["data"])

    def printed(self) -> bytes:
        """The page as PDF, on A4."""
        told = self._send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(told["data"])

    def _send(self, method: str, **parameters: Any) -> Dict[str, Any]:
        self._number += 1
        command: Dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + CASE_LIMIT_S
        while True:
            message = self._receive(deadline, method)
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                result: Dict[str, Any] = message["result"]
                return result

    def _await(self, event: str) -> None:
        deadline = time.monotonic() + CASE_LIMIT_S
        while event not in self._events:
            self._receive(deadline, event)

    def _receive(self, deadline: float, awaited: str) -> Dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser does not answer: {awaited}"
            part = os.read(self._from, 1 << 20)
            assert part, f"the browser has ended: {awaited}"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: Dict[str, Any] = json.loads(text)
        if "method" in message:
            self._note(message["method"], message["params"])
        return message

    def _note(self, event: str, told: Dict[str, Any]) -> None:
        self._events.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{told['type']}: {told['args']}")
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {told['exceptionDetails']}")
        elif event == "Log.entryAdded":
            self.complaints.append(f"{told['entry']['level']}: {told['entry']['text']}")


RATES = ("downloadThroughput", "uploadThroughput")


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Starts the browser, and ends it with all its processes."""
    assert PROGRAM is not None
    pipes = [os.pipe(), os.pipe()]  # to the browser, from it
    (their_in, to_browser), (from_browser, their_out) = pipes
    theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FREE_DESCRIPTOR) for fd in (their_in, their_out)]
    command = [PROGRAM, *OPTIONS, f"--user-data-dir={folder}/profile", "about:blank"]
    script = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
    with (folder / "browser.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=theirs,
            start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        )
    for fd in (their_in, their_out, *theirs):
        os.close(fd)
    try:
        yield Page(to_browser, from_browser)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=CASE_LIMIT_S)
        os.close(to_browser)
        os.close(from_browser)
