"""Templates of drawings and reports, and what fills them."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2

from fxremat.inspect.drawings.style import BACKGROUND, EDGES, INK, MUTED, NODES

__all__ = ["fill", "quote"]


def fill(name: str, **known: Any) -> str:
    """Fill a template; texts are escaped in ``.html`` and ``.svg``."""
    return _environment().get_template(name).render(known)


def quote(text: object) -> str:
    r"""A string of graphviz's language that shows this text as it is.

    >>> print(quote('a "b"'))
    "a \"b\""
    """
    escaped = _clean(str(text)).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__ or "", ""),
        autoescape=jinja2.select_autoescape(["html", "svg"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    made.filters["quote"] = quote
    made.globals |= {"node_styles": NODES, "edge_styles": EDGES}
    made.globals |= {"background": BACKGROUND, "ink": INK, "muted": MUTED}
    return made


def _shown(value: Any) -> Any:
    """Numbers are pixels; texts go without what XML cannot hold."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return _clean(value) if type(value) is str else value


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
