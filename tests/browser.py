"""A real browser for tests: headless Chromium over its debugging pipe, standard library only."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome") if os.name == "posix" else ()
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine; install the system's chromium package"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--mute-audio", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


# the browser reads commands from descriptor 3 and answers on 4
LAUNCH = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors are out of the way of 3 and 4."""
    ends = os.pipe()
    import fcntl  # not on Windows, where there is no such pipe to a browser

    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """One Chromium with its own profile; `open` gives a page."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="upriver-browser-")
        read_here, write_there = high_pipe()
        read_there, write_here = high_pipe()
        words = [str(CHROMIUM), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(read_there), str(write_there), *words],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self.input, self.output = write_here, read_here
        self.buffer = b""
        self.count = 0
        self.answers: dict[int, dict] = {}
        self.pages: dict[str, Page] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.input)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.output)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters) -> dict:
        """Send a command and wait for its answer; events that arrive meanwhile are handed on."""
        self.count += 1
        number = self.count
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.input, data) :]
        deadline = time.monotonic() + 60
        while number not in self.answers:
            self.listen(deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise TimeoutError(f"the browser does not answer {method}")
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def listen(self, seconds: float) -> None:
        """Take in what the browser says for up to `seconds`, or until it says something."""
        ready, _, _ = select.select([self.output], [], [], max(0.0, seconds))
        if not ready:
            return
        data = os.read(self.output, 1 << 20)
        if not data:
            raise RuntimeError("the browser closed its end")
        *complete, self.buffer = (self.buffer + data).split(b"\0")
        for text in complete:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].hear(message["method"], message["params"])

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", features=scheme)
        page.call("Page.navigate", url=url)
        page.wait("document.readyState === 'complete'")
        return page


class Page:
    """One open page: what it complained about, what it asked for, and hands to use it with."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session
        self.errors: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters) -> dict:
        return self.browser.call(method, self.session, **parameters)

    def hear(self, method: str, event: dict) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(event["exceptionDetails"].get("exception", event)))
        elif method == "Runtime.consoleAPICalled" and event["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(str([a.get("value") for a in event["args"]]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.errors.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    @property
    def network(self) -> list[str]:
        """What was asked for beyond the page itself and data inside it."""
        return [u for u in self.requests[1:] if not u.startswith(("data:", "blob:"))]

    def run(self, script: str):
        """The value of a JavaScript expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Until a JavaScript expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still not true after {seconds:g} s: {condition}")
            self.browser.listen(0.05)

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def place(self, selector: str) -> tuple[float, float, float, float]:
        """(x, y, width, height) in the window, scrolled into view."""
        return tuple(
            self.run(
                f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
                e.scrollIntoView({{block: "center", behavior: "instant"}});
                const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()"""
            )
        )

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y, width, height = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x + width / 2, y=y + height / 2,
                button="left" if kind != "mouseMoved" else "none", clickCount=1,
            )  # fmt: skip

    def choose(self, selector: str, value: str) -> None:
        """Pick an option, as a person with a keyboard would leave it."""
        done = self.run(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.value = {json.dumps(value)}; e.dispatchEvent(new Event("change", {{bubbles: true}}));
            return e.value; }})()"""
        )
        assert done == value, f"{selector} has no option {value!r}"

    def screenshot(self, path: str | Path, whole: bool = True) -> None:
        """A PNG of the window, or of the whole page."""
        clip = {}
        if whole:
            width, height = self.run(
                "[document.documentElement.clientWidth, document.documentElement.scrollHeight]"
            )
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def print(self, path: str | Path) -> None:
        Path(path).write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))
