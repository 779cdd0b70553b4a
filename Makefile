# Every target sets itself up: it makes .venv and installs what it needs into it, once, and again
# when pyproject.toml or constraints.txt change.
#
#   make demo       train a small GPT at 0.4 of its peak memory, and compare (about two minutes)
#   make test       the tests, without those marked slow
#   make slow       the tests marked slow
#   make lint       ruff and mypy
#   make examples   run every example, at small sizes
#   make docs       the documents and the reference as a site, in site/
#   make clean      remove .venv and caches
#
# PYTHON      the interpreter to make .venv with, 3.11 or later
# TORCH_ARGS  more arguments to pip for torch, for instance the index of another build
#             (see the README, "Install")

PYTHON ?= python3
TORCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH := $(shell grep '^torch==' constraints.txt)
SOURCES := fxremat passes tests examples $(if $(wildcard benchmarks/*.py),benchmarks)

.PHONY: setup demo test slow lint examples docs clean

setup: $(STAMP)

# torch goes first and by itself: pip then takes the build that TORCH_ARGS or its own settings
# name, and the second step finds it there and does not look for another.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt $(TORCH_ARGS) $(TORCH)
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/train_gpt.py --budget 0.4 --inner eager

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)

examples: $(STAMP)
	$(BIN)/python examples/quickstart.py
	$(BIN)/python examples/accumulate.py --memory 12MiB --target 32 --depth 4 --width 64
	$(BIN)/python examples/train_gpt.py --steps 5 --layers 2 --width 64 --heads 4 --length 64
	$(BIN)/torchrun --standalone --nproc-per-node 2 examples/distributed.py --steps 3
	$(BIN)/torchrun --standalone --nproc-per-node 2 examples/distributed.py --steps 3 --mode fsdp
	$(BIN)/python examples/huggingface.py --layers 2 --pairs 3
	$(BIN)/python examples/accelerate_loop.py --layers 2 --pairs 3
	$(BIN)/python examples/lightning_module.py --depth 4 --pairs 3
	$(BIN)/python examples/diffusion.py --size 16 --pairs 3

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
