"""Mends markup of docutils that screen readers cannot use."""

from typing import Any

from sphinx.application import Sphinx


def mend_bibliography(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Name an entry of the bibliography what it is, an item of its list.

    docutils writes ``doc-biblioentry``, which ARIA has withdrawn.
    """
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", mend_bibliography)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
