"""What the kinds of nodes and edges look like, and what they mean.

The colours are near those of Okabe and Ito (2008), which people of all kinds of colour vision can
tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BACKGROUND", "EDGES", "INK", "MUTED", "NODES", "Style"]

BACKGROUND, INK, MUTED = "#ffffff", "#1b1f24", "#59636e"


@dataclass(frozen=True, slots=True)
class Style:
    """How one kind is drawn.

    Attributes:
        meaning: the kind in words, for a legend.
        line: colour of the outline or of the edge.
        fill: colour of the inside; of no use to edges.
        width: of the line.
        dashes: lengths of dash and gap, as SVG writes them, or "".
    """

    meaning: str
    line: str
    fill: str = BACKGROUND
    width: float = 1.2
    dashes: str = ""


NODES = {
    "source": Style("source", "#1b1f24", "#dfe3e8", 1.6),
    "sink": Style("sink", "#1b1f24", "#dfe3e8", 1.6),
    "input": Style("input of the step, exists anyway", "#8c959f", "#f3f4f6"),
    "tangent": Style("tangent, handed in by the caller", "#a8477f", "#f8e7f1"),
    "forward": Style("runs in the forward", "#6e7781", "#ffffff"),
    "saved": Style("saved", "#0072b2", "#d5e9f6", 1.8),
    "output": Style("returned by the forward", "#1b1f24", "#dfe3e8", 1.4),
    "recomputed": Style("recomputed", "#c45500", "#ffe3c7", 1.8),
    "late": Style("runs in the backward in any case", "#8a6d00", "#f9f0bd"),
    "backward": Style("runs in the backward", "#57606a", "#eceff2"),
    "gradient": Style("makes a gradient that is returned", "#007a5a", "#d4efe6"),
    "unneeded": Style("not needed by the backward", "#8c959f", "#ffffff", 1.0),
    "unused": Style("does not run", "#afb8c1", "#ffffff", 1.0, "3 3"),
    "fixed": Style("may not run again", "#1b1f24", "#ffffff", 1.6),
}

EDGES = {
    "value": Style("a value, within one half", "#9aa4af", width=1.0),
    "given": Style("an input or a tangent", "#c4cbd2", width=0.9),
    "saved": Style("saved: crosses the cut", "#0072b2", width=1.8),
    "held": Style("an output that the caller holds", "#57606a", width=1.3),
    "recomputed": Style("computed again", "#d55e00", width=1.4, dashes="5 3"),
    "paid": Style("the plan pays for it", "#c4006a", width=2.4),
    "free": Style("crosses the cut at no price", "#0072b2", width=1.4),
    "finite": Style("could be cut, at its price", "#7d8791", width=1.0),
    "endless": Style("may not be cut", "#b4bcc4", width=0.9, dashes="2 3"),
}
