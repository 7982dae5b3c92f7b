"""A headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol)."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

BROWSER = shutil.which("chromium")
TIMEOUT = 300  # ends a hung test; measures nothing


class Browser:
    """One page. Commands and answers are JSON, each ended by a zero byte."""

    def __init__(self, width=1280, height=900, dark=False, scale=1):
        self.profile = tempfile.mkdtemp(prefix="leeway-browser-")
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def place_pipes():  # the browser reads from 3 and writes to 4
            os.dup2(to_read, 100)
            os.dup2(from_write, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        self.process = subprocess.Popen(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
             "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.messages = []  # of the console, and exceptions
        self.loaded = False
        page = None
        while page is None:  # it may not have opened yet
            targets = self.call("Target.getTargets")["targetInfos"]
            page = next((t for t in targets if t["type"] == "page"), None)
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 600)
        if dark:
            self.call("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded",
                                   "Page.javascriptDialogOpening"):
            self.messages.append(event["params"])
        # It may come before the answer to the command that caused it.
        self.loaded |= event.get("method") == "Page.loadEventFired"

    def read(self):
        while b"\0" not in self.buffer:
            data = os.read(self.from_read, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self.note(self.read())

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, script):
        """Until the script gives a true value, looked at once per frame in the page."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            value = self.evaluate(
                "new Promise((done) => { let left = 300; const look = () => { let v = false; "
                f"try {{ v = ({script}); }} catch (notYet) {{}} "
                "if (v || !left--) done(v); else setTimeout(look, 16); }; look(); })")
            if value:
                return value
        raise AssertionError(f"never true: {script}\n{self.evaluate('document.body.innerText')}")

    def screenshot(self, path, full=False):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to_write)
        os.close(self.from_read)
        shutil.rmtree(self.profile, ignore_errors=True)
