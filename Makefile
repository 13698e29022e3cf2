# Two commands do everything on a machine with Python 3.11+ and make:
#   make reproduce    the paper's table and figures, beside the printed numbers
#   make test         lint, types and tests
# `make soak` runs the long checks, `make docs` builds the documentation.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= results/paper
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: reproduce test lint rooms soak docs bench clean

reproduce: $(VENV)/.runtime
	$(BIN)/upriver reproduce --out $(OUT)

test: lint
	$(BIN)/pytest -n 2 -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

rooms: $(VENV)/.dev
	$(BIN)/python tools/rooms.py

soak: $(VENV)/.dev
	$(BIN)/pytest -n 2 -m slow

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

bench: $(VENV)/.dev
	$(BIN)/upriver bench

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit("Upriver needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache .hypothesis
