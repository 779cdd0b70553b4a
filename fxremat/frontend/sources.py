"""Where the nodes of a joint graph come from: op, module path, line of the user's code."""

from __future__ import annotations

import re
from pathlib import PurePath

from torch import fx

from fxremat.constraints.user import module_path
from fxremat.problem.context import Origin
from passes.analysis.joint import JointGraph, Role
from passes.printer import target_text, type_text

__all__ = ["origins_of"]

_FRAME = re.compile(r'File "([^"]+)", line (\d+)[^\n]*(?:\n\s*([^\n]+))?')


def origins_of(joint: JointGraph) -> dict[str, Origin]:
    """The origin of every op, input, tangent and value of a joint graph, by node name."""
    wanted = (Role.OP, Role.ITEM, Role.INPUT, Role.TANGENT)
    return {n.name: _origin(joint, n) for n in joint.nodes if joint.roles[n.name] in wanted}


def _origin(joint: JointGraph, node: fx.Node) -> Origin:
    role = joint.roles[node.name]
    shape = type_text(node.meta.get("val"))
    if role in (Role.INPUT, Role.TANGENT):
        return Origin(role.value, shape)
    source, code = _line(str(node.meta.get("stack_trace") or ""))
    return Origin(target_text(joint.maker(node)), shape, module_path(node), source, code)


def _line(trace: str) -> tuple[str, str]:
    """File with its folder, number and text of the innermost line of a stack trace."""
    frames = _FRAME.findall(trace)
    if not frames:
        return "", ""
    path, line, code = frames[-1]
    short = "/".join(PurePath(path).parts[-2:])
    return f"{short}:{line}", code.strip()
