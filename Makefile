# make demo      train on a small real data set for a few minutes and see what was learned
# make quick     lint (ruff, mypy, import-linter), then the tests of single modules: about two minutes
# make test      lint, then all tests but the slow ones; those that need a browser are skipped without one
# make test-slow the slow tests
# make docs      the documentation as a site, in build/site
# make package   a wheel and an sdist, tried in an empty environment
# make setup     only create .venv with pinned versions
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: setup demo docs lint quick test test-slow package format clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("frossl needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/frossl demo

docs: $(READY)
	$(BIN)/zensical build --clean --strict

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: lint
	$(PYTEST) -n 2 tests/unit tests/contract

test: lint
	$(PYTEST) -n auto --maxprocesses 4

test-slow: $(READY)
	$(PYTEST) -n 2 -m slow

# A wheel and an sdist in build/dist, tried in an empty environment.
package: $(READY)
	bash .ci/package

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
