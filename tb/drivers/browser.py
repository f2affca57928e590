"""Pages in a real browser: Chromium without a screen opens each of them at several widths, and says what it saw.

The pages come from a server on this machine. A page of ours, in the same browser, shows them in frames of the widths
asked for (their layout is that of a window so wide), looks at them when they are complete, and sends what it found.
"""

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PHONE, DESKTOP = 390, 1280
"""Pixels of CSS: a telephone held upright, a laptop."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TIMEOUT = 300
LOOKER = """<!doctype html><title>looker</title><script>
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.src = page;
  const loaded = new Promise(done => frame.onload = done);
  document.body.append(frame);
  await loaded;
  const inside = frame.contentWindow, root = inside.document.documentElement;
  await inside.document.fonts.ready;
  for (const image of inside.document.images) image.loading = "eager";
  await Promise.all([...inside.document.images].map(image => image.decode().catch(() => 0)));
  const seen = {
    page, width,
    title: inside.document.title,
    heading: inside.document.querySelector("h1")?.innerText ?? "",
    text: inside.document.body.innerText.length,
    room: root.clientWidth,
    needed: Math.max(root.scrollWidth, inside.document.body.scrollWidth),
    blind: [...inside.document.images].filter(image => !image.naturalWidth).map(image => image.src),
    fetched: inside.performance.getEntriesByType("resource").map(entry => entry.name),
  };
  frame.remove();
  return seen;
}
async function all() {
  const seen = [];
  for (const [page, width] of JOBS) seen.push(await look(page, width));
  await fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
}
const told = error => fetch("/seen", {method: "POST", body: JSON.stringify(String(error))});
onload = () => all().catch(told);
</script><body></body>
"""


def browser() -> str | None:
    """The program, if this machine has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class View:
    """`page` in a window of `width`: its `title` and first `heading`, how many letters of `text` it shows, how wide
    it is (`needed`; `room` is the window without its scroll bar), pictures that could not be shown (`blind`), what it
    `fetched`."""

    page: str
    width: int
    title: str
    heading: str
    text: int
    room: int
    needed: int
    blind: tuple[str, ...]
    fetched: tuple[str, ...]


@dataclass(frozen=True)
class Looked:
    """All views, and what the server could not give (`missing`)."""

    views: tuple[View, ...]
    missing: tuple[str, ...]
    origin: str

    def errors(self) -> list[str]:
        """What is wrong with the pages, one sentence each."""
        found = [f"{path} is missing" for path in self.missing]
        for view in self.views:
            where = f"{view.page} at {view.width} pixels"
            if not view.title.strip():
                found.append(f"{where} has no title")
            if not view.text:
                found.append(f"{where} is empty")
            if view.needed > view.room:
                found.append(f"{where} needs {view.needed} pixels, has room for {view.room}")
            found += [f"{where} does not show {picture}" for picture in view.blind]
            found += [f"{where} fetches {url}" for url in view.fetched if not url.startswith((self.origin, "data:"))]
        return found


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and the page that looks; `server.seen` is what that page sends."""

    server: Any

    def do_GET(self) -> None:
        if self.path == "/looker":
            page = self.server.looker.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()
        self.server.arrived.set()

    def send_error(self, code: int, *arguments: Any) -> None:
        """Of a browser itself is only the picture for its tab."""
        if self.path != "/favicon.ico":
            self.server.missing.append(self.path)
        super().send_error(code, *arguments)

    def log_message(self, *arguments: Any) -> None:
        """Nothing: the tests print what is wrong."""


@contextmanager
def _serving(folder: Path, looker: str) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    server.looker, server.seen, server.missing, server.arrived = looker, None, [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def look(folder: Path, pages: Sequence[str], widths: Sequence[int] = (PHONE, DESKTOP)) -> Looked:
    """Open `pages` of `folder` at all `widths`. Raises :class:`TimeoutError` when the browser does not answer, and
    :class:`RuntimeError` with its words when a page stops it."""
    program = browser()
    assert program is not None
    jobs = [[f"/{page}", width] for page in pages for width in widths]
    # The browser's own children may write to its profile for a moment after it ended.
    profiles = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with _serving(folder, LOOKER.replace("JOBS", json.dumps(jobs))) as server, profiles as profile:
        origin = f"http://127.0.0.1:{server.server_address[1]}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"]
        options += [
            f"--window-size={max(widths) + 100},1000",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
        ]
        command = [program, *options, f"{origin}/looker"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            arrived = server.arrived.wait(TIMEOUT)
            process.terminate()
            process.wait()
        if not arrived:
            raise TimeoutError(f"{program} has not looked at {len(jobs)} pages within {TIMEOUT} s")
        if isinstance(server.seen, str):
            raise RuntimeError(server.seen)
        views = tuple(
            View(**{**seen, "blind": tuple(seen["blind"]), "fetched": tuple(seen["fetched"])}) for seen in server.seen
        )
        return Looked(views, tuple(sorted(set(server.missing))), origin)
