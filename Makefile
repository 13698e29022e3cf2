# Two commands do everything on a machine with Python 3.11+ and make:
#   make reproduce    the paper's table and figures, beside the printed numbers
#   make test         lint, types and tests
# `make soak` runs the long checks, `make docs` builds the documentation, `make bench` measures speed,
# `make floors` and `make newest` test with the lowest and the newest versions of the dependencies,
# and `make release` builds the package and tries it outside of the checkout.

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

.PHONY: reproduce test lint soak docs bench bench-compare floors newest release clean

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
	$(BIN)/python -m benchmarks --peers --out bench.json --page docs/results/tables/performance.txt

bench-compare: $(VENV)/.dev
	$(BIN)/python -m benchmarks.compare $(OLD) $(NEW)

# Their kernels are compiled by another numba, so each has a cache of its own.
floors newest: export NUMBA_CACHE_DIR = $(CURDIR)/$(VENV)-$@/kernels
floors: $(VENV)-floors/.floors
	$(VENV)-floors/$(notdir $(BIN))/pytest -n 2 -m "not slow"

newest: $(VENV)-newest/.newest
	$(VENV)-newest/$(notdir $(BIN))/pytest -n 2 -m "not slow"

release: $(VENV)/.dev
	$(BIN)/python tools/release.py

$(VENV)/.runtime: pyproject.toml constraints.txt
	$(PYTHON) tools/environment.py $(VENV)

$(VENV)/.dev: $(VENV)/.runtime
	$(PYTHON) tools/environment.py $(VENV) dev

$(VENV)-floors/.floors: pyproject.toml
	$(PYTHON) tools/environment.py $(VENV)-floors floors

$(VENV)-newest/.newest: pyproject.toml
	$(PYTHON) tools/environment.py $(VENV)-newest newest

clean:
	$(PYTHON) -c "import shutil; [shutil.rmtree(x, True) for x in '$(VENV) $(VENV)-floors $(VENV)-newest dist docs/_build .pytest_cache .ruff_cache .hypothesis'.split()]"
