"""What becomes of links to files of the repository in the site, which holds docs/ alone? Their text, with the file's path.

A hook of mkdocs (`mkdocs.yml`). In the repository such links lead to the file; in the site there is nothing to lead to.
"""

from __future__ import annotations

import posixpath
import re

_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?:\.\./)+[^)#\s]*)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: object, config: object, files: object) -> str:  # noqa: ARG001
    """Return a page's text with these links taken apart."""
    folder = posixpath.dirname(page.file.src_uri)  # type: ignore[attr-defined]

    def without(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link["target"]))
        if path.startswith("docs/"):
            return link[0]
        text = link["text"]
        return text if path in text else f"{text} (`{path}`)"

    return _LINK.sub(without, markdown)
