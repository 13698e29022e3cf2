# Two commands do everything on a machine with Python 3.11+ and make:
#   make reproduce    the paper's table and figures, beside the printed numbers
#   make test         lint, types and tests
# `make soak` runs the long checks, `make docs` builds the documentation, `make bench` measures speed,
# `make floors` tests with the lowest versions of the dependencies.

VENV := .venv
OUT ?= results/paper
ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN := $(VENV)/Scripts
else
PYTHON ?= python3
BIN := $(VENV)/bin
endif
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: reproduce test lint soak docs bench bench-compare floors clean

reproduce: $(VENV)/.runtime
	$(BIN)/upriver reproduce --out $(OUT)

test: lint
	$(BIN)/pytest -n 2 -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

soak: $(VENV)/.dev
	$(BIN)/pytest -n 2 -m slow

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --peers --out bench.json --page docs/results/tables/performance.md

bench-compare: $(VENV)/.dev
	$(BIN)/python -m benchmarks.compare $(OLD) $(NEW)

# its kernels are compiled by another numba, so they get a cache of their own
floors: export NUMBA_CACHE_DIR = $(CURDIR)/$(VENV)-floors/kernels
floors: $(VENV)-floors/.floors
	$(VENV)-floors/$(notdir $(BIN))/pytest -n 2 -m "not slow"

$(VENV)/.runtime: pyproject.toml constraints.txt
	$(PYTHON) tools/environment.py $(VENV)

$(VENV)/.dev: $(VENV)/.runtime
	$(PYTHON) tools/environment.py $(VENV) dev

$(VENV)-floors/.floors: pyproject.toml
	$(PYTHON) tools/environment.py $(VENV)-floors floors

clean:
	$(PYTHON) -c "import shutil; [shutil.rmtree(x, True) for x in '$(VENV) $(VENV)-floors docs/_build .pytest_cache .ruff_cache .hypothesis'.split()]"
