"""A built book, served to a Chromium that can reach nothing else."""

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from rstar2.book.build import build_book
from rstar2.cli.doctor import chromium_command, find_chromium

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Site:
    """The book under an address on this machine."""

    folder: Path
    address: str

    @property
    def pages(self) -> list[str]:
        """Every page that a reader can open, from the table of contents' files."""
        return sorted(
            str(path.relative_to(self.folder))
            for part in ("book", "notebooks")
            for path in (self.folder / part).glob("*.html")
        )


@dataclass
class Watched:
    """A page and what went wrong while it loaded."""

    page: Page
    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    http: list[str] = field(default_factory=list)


class Visitor:
    """Opens pages of the site, one fresh browser context each."""

    def __init__(self, browser: Browser, site: Site) -> None:
        self._browser = browser
        self._site = site
        self._contexts = []

    def open(self, name: str, *, width: int = 1280, dark: bool = False, script: bool = True):
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            reduced_motion="reduce",
        )
        self._contexts.append(context)
        watched = Watched(context.new_page())

        def keep_home(route: Route) -> None:
            url = route.request.url
            if url.startswith((self._site.address, "data:", "blob:")):
                route.continue_()
            else:
                watched.foreign.append(url)
                route.abort()

        page = watched.page
        page.route("**/*", keep_home)
        page.on(
            "console",
            lambda message: (
                watched.errors.append(message.text) if message.type == "error" else None
            ),
        )
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on(
            "response",
            lambda answer: (
                watched.http.append(f"{answer.status} {answer.url}")
                if answer.status >= 400
                else None
            ),
        )
        page.goto(self._site.address + name, wait_until="load")
        if script:
            page.evaluate("() => window.MathJax?.startup?.promise")
        return watched

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The book: the HTML folder that ``RSTAR2_SITE`` names, or a fresh build."""
    if "RSTAR2_SITE" in os.environ:
        folder = Path(os.environ["RSTAR2_SITE"]).resolve()
    else:
        out = tmp_path_factory.mktemp("book")
        folder = build_book(ROOT, cache_key="site-tests", out=out).parent
    handler = functools.partial(_Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Site(folder, f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed after its module: an open one leaves an event loop running in this thread."""
    chromium = os.environ.get("CHROMIUM") or find_chromium()
    if chromium is None:
        pytest.fail(f"there is no Chromium: {chromium_command()}; or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(chromium), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def visitor(browser: Browser, site: Site) -> Iterator[Visitor]:
    visits = Visitor(browser, site)
    yield visits
    visits.close()
