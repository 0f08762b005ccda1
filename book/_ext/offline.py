"""Keeps the built pages free of requests to other hosts, and fails the build on one."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_LOAD = re.compile(
    r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="(?:https?:)?//([^"]+)"[^>]*>', re.I
)
_NO_LOAD = re.compile(r'rel="(?:canonical|edit|next|prev|license|author)"')


def drop_thebe(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Drop the live-code scripts, which Jupyter Book puts into every page unasked."""
    for key in ("script_files", "css_files"):
        context[key] = [file for file in context.get(key, []) if not _is_thebe(file)]


def _is_thebe(file: object) -> bool:
    name = str(getattr(file, "filename", file) or "")
    body = (getattr(file, "attributes", None) or {}).get("body", "") or ""
    return "thebe" in name or "THEBE_JS_URL" in body


def check_pages(app: Sphinx, exception: Exception | None) -> None:
    """Raise if a page loads a script, style, picture or frame from elsewhere."""
    if exception or app.builder.format != "html":
        return
    root = Path(app.outdir)
    foreign = [
        f"{page.relative_to(root)}: {match[1]}"
        for page in sorted(root.rglob("*.html"))
        if "_static" not in page.parts
        for match in _LOAD.finditer(page.read_text("utf-8"))
        if not _NO_LOAD.search(match[0])
    ]
    if foreign:
        raise ExtensionError("pages load files from other hosts:\n" + "\n".join(foreign))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", check_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
