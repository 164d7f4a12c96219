"""A Chromium of this machine, driven by Playwright; it reaches nothing but loopback."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATHS: Final = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Every name but localhost: not found.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
_WIDTH, _HEIGHT = 1280, 900


def find_chromium() -> str:
    """Return the path of a Chromium; "" if there is none."""
    for name in (os.environ.get("SLUICE_CHROMIUM", ""), *_NAMES, *_PATHS):
        found = shutil.which(name) if name else None
        if found:
            return found
    return ""


class Watched:
    """A page whose faults are collected: console errors, exceptions, refused loads, requests to elsewhere.

    Args:
        allowed: the beginning of every address that the page may ask for.
    """

    def __init__(self, page: Page, allowed: str) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("console", self._message)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("request", lambda request: self._request(request.url, allowed))

    def check(self) -> None:
        """Fail if there was a fault: a CSP violation is an error on the browser's console."""
        assert self.faults == []

    def _message(self, message: "object") -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def _request(self, url: str, allowed: str) -> None:
        if not url.startswith(allowed):
            self.faults.append(f"asks elsewhere: {url}")


@contextmanager
def chromium(*, dark: bool = False, width: int = _WIDTH, height: int = _HEIGHT) -> Iterator[BrowserContext]:
    """Run a Chromium with an empty profile; where there is none a test is skipped, or fails where CI=true."""
    path = find_chromium()
    if not path:
        missing = "no Chromium on this machine (chromium, chromium-browser, google-chrome)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="sluice-chromium-") as directory, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            Path(directory),
            executable_path=path,
            headless=True,
            args=list(_ARGUMENTS),
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": height},
        )
        try:
            yield context
        finally:
            context.close()


def picture(context: BrowserContext, url: str, path: Path) -> None:
    """Open a page, wait until it is live, and take a picture of all of it."""
    page = context.new_page()
    watched = Watched(page, url[: url.index("/", len("https://"))])
    page.goto(url)
    page.wait_for_selector('#live[data-state="live"]')
    page.wait_for_timeout(300)  # fonts and the first change are drawn
    page.screenshot(path=path, full_page=True, animations="disabled")
    watched.check()
    page.close()
