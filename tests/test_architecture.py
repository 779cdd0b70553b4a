"""The packages: in which order they import one another, and which of them never see torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A room may import from rooms on lines above its own, and from itself.
ORDER = (
    ("passes",),
    ("base",),
    ("problem", "constraints"),
    ("solver", "costs", "plans"),
    ("options",),
    ("frontend",),
    ("planning",),
    ("inspect", "distributed", "api"),
    ("backends",),
    ("__init__", "integrations"),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(ORDER) for room in rooms}
WITHOUT_TORCH = ("problem", "solver", "plans")


def modules() -> list[Path]:
    return sorted([*ROOT.glob("passes/**/*.py"), *ROOT.glob("fxremat/**/*.py")])


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def room_of(module: str) -> str:
    first, _, rest = module.partition(".")
    return "passes" if first == "passes" else rest.split(".")[0] or "__init__"


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The modules that a file names in imports, also in those within functions."""
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8"))))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, so that they can be searched for"
            assert node.module is not None
            yield node.module
            for alias in node.names:  # a module, or a name of one
                yield f"{node.module}.{alias.name}"


def file_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    found = (path.with_suffix(".py"), path / "__init__.py")
    return next((p for p in found if p.exists()), None)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_run_downward(path: Path) -> None:
    mine = room_of(name_of(path))
    for module in imports(path):
        if module.split(".")[0] not in ("fxremat", "passes") or file_of(module) is None:
            continue
        theirs = room_of(module)
        assert theirs == mine or FLOOR[theirs] < FLOOR[mine], f"{mine} may not import {module}"


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_some_rooms_never_see_torch(room: str) -> None:
    seen: set[Path] = set()
    stack = sorted(ROOT.glob(f"fxremat/{room}/**/*.py"))
    assert stack
    while stack:
        path = stack.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imports(path):
            assert module.split(".")[0] != "torch", f"{path}: {module}"
            inner = file_of(module) if module.split(".")[0] in ("fxremat", "passes") else None
            if inner is not None:
                stack.append(inner)


def test_every_package_says_what_it_owns() -> None:
    packages = [p for p in modules() if p.name == "__init__.py"]
    assert len(packages) > 20
    for path in packages:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert len(text) > 30, f"{path}: no word on what it owns"
