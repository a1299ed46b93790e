# make demo    train on a small real data set for a few minutes and see what was learned
# make test    everything that must hold: ruff, mypy, import-linter, pytest
# make docs    the documentation as a site, in build/site
# make package a wheel and an sdist, tried in an empty environment
# make setup   only create .venv with pinned versions
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser

.PHONY: setup demo docs lint test test-slow package format clean

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

# A browser and axe-core for the tests of the report; where they cannot be had, those are skipped and say so.
$(BROWSER): $(READY)
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } > /dev/null || true
	npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4 || true
	touch $@

test: lint $(BROWSER)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup

test-slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n 2 --dist loadgroup

# A wheel and an sdist in build/dist, tried in an empty environment.
package: $(READY)
	bash .ci/package

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
