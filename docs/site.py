"""What `make docs` needs beside mkdocs: the README as front page, docstrings for griffe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

__all__ = ["Docstrings", "on_page_markdown"]

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLE = re.compile("^Example:$", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?([^`]+)`")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page (a hook of mkdocs): the README in place of the index."""
    if page.file.src_uri != "index.md":
        return markdown
    text = README.read_text(encoding="utf-8").replace("](docs/", "](")
    return text.replace("[CONTRIBUTING](CONTRIBUTING.md)", "`CONTRIBUTING.md`")


class Docstrings(griffe.Extension):
    """Shows roles (``:func:``) as code, and an example as one."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was read."""
        if obj.docstring:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub("Examples:", text)
