"""Links from a page to files that are no pages, such as tests and examples: they lead to the repository."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(\]\(|^\[[^]]+\]: )((?:\.\./)+[\w./-]+)", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def resolved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if target.startswith("docs/"):
            return match[0]
        return f"{match[1]}{config.repo_url}/blob/main/{target}"

    return LINK.sub(resolved, markdown)
