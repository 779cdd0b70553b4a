"""Every code block of the README and of docs/ runs, and commands print what is written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import fxremat
from fxremat.cli.parser import main
from tests.test_cli import TRAIN

ROOT = Path(__file__).resolve().parent.parent
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples/README.md")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    path: Path
    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    """The blocks of a document, in order, without their indentation."""
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    return [
        Block(path, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, text in found
    ]


class Part(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.mlp(x)
        return made


class Model(nn.Module):
    """Blocks with what the documents name."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Part() for _ in range(3))
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        made: Tensor = self.head(x).square().mean()
        return made


@pytest.fixture
def names() -> dict[str, Any]:
    """What the documents take for granted."""
    torch.manual_seed(0)
    return {
        "fxremat": fxremat,
        "model": Model(),
        "batch": torch.randn(128, 32),
        "x": torch.randn(2, 4),
        "attention": nn.Identity(),
        "make_batch": lambda n: torch.randn(n, 32),
        "__name__": "document",
    }


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[None]:
    """A process group of one rank, for the document about several."""
    if request.node.callspec.params["path"].name != "processes.md":
        yield
        return
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    with torch._dynamo.config.patch(optimize_ddp=True):  # the document changes it
        yield
    dist.destroy_process_group()


WITH_PYTHON = [p for p in FILES if any(b.language == "python" for b in blocks(p))]


def test_the_blocks_are_found() -> None:
    for path in FILES:
        fences = re.findall(r"^ *```", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks(path)), path
    found = {path.name for path in WITH_PYTHON}
    assert found >= {
        "README.md",
        "extending.md",
        "architecture.md",
        "libraries.md",
        "processes.md",
        "troubleshooting.md",
    }


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("path", WITH_PYTHON, ids=lambda p: p.name)
def test_python_blocks_run(
    path: Path, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that raises fails the test; what it asserts itself holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    for block in blocks(path):
        if block.language == "python":
            exec(compile(block.text, f"{path.name}:\n{block.text}", "exec"), names)


def commands(path: Path) -> Iterator[tuple[str, str]]:
    """Commands that a document shows at a prompt, and what they print."""
    for block in blocks(path):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                yield command, printed


# The README plans 7 billion parameters.
WITH_COMMANDS = [
    pytest.param(path, marks=[pytest.mark.slow] * (path.name == "README.md"), id=path.name)
    for path in FILES
    if any(commands(path))
]


@pytest.mark.parametrize("path", WITH_COMMANDS)
def test_commands_print_what_is_written(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    for command, printed in commands(path):
        name, *args = shlex.split(command)
        assert name == "fxremat"
        assert main(args) == 0
        shown = capsys.readouterr().out
        assert not printed or shown == printed, command


KNOWN = re.compile(r"(pip install|make|python (examples|benchmarks|docs)/|python -m|torchrun)\b")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_other_blocks_name_what_there_is(path: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in blocks(path):
        assert block.language in ("", "python", "console", "sh", "mermaid"), block
        for line in block.text.splitlines() if block.language == "sh" else ():
            assert KNOWN.match(line), line
            for made in re.findall(r"^make (\w+)", line):
                assert made in targets
            for file in re.findall(r"python ((?:examples|benchmarks|docs)/\S+\.py)", line):
                assert (ROOT / file).is_file(), file
            for module in re.findall(r"python -m (benchmarks\.\w+)", line):
                assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
