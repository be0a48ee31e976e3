# Every target works in a fresh clone: it creates .venv and installs pinned dependencies first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: run test slow bench lint docs dist lowest coverage mutants papers clean

run: $(READY)
	$(BIN)/dpconvex demo

test: $(READY)
	$(BIN)/pytest -n auto

# Everything with the long runs, for hours; TESTS=tests/audit for a part, as the night's jobs take it.
slow: TESTS = tests src reproduction
slow: $(READY)
	$(BIN)/pytest -n auto -m "slow or not slow" $(TESTS)

# Lines that the tests run, compiled kernels and other processes aside; `dpconvex reproduce evidence` tells README.
coverage: $(READY)
	$(BIN)/pytest -n auto --cov=dpconvex --cov-report=term:skip-covered
	$(BIN)/coverage report --format=total --precision=1 > docs/evidence/coverage.txt

# Do the tests notice 200 small errors in the trusted core?
mutants: $(READY)
	$(BIN)/python tools/mutants.py --count 200 --out mutants.json

bench: $(READY)
	$(BIN)/python -m benchmarks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

# Pages of names that are gone would be warnings.
docs: .venv/.docs
	rm -rf docs/reference/api
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs site
	@echo "The site is in site/index.html"

# Sdists and wheels, installed and used in an environment of their own.
dist: $(READY)
	$(BIN)/python tools/check_dist.py

# The tests with the oldest versions that pyproject.toml allows; TESTS=tests/privacy for a part of them.
lowest:
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tools/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python $(INSTALL) -c .venv-lowest/constraints.txt -e ".[dask,plots,studio,test]" -e ./reproduction
	NUMBA_CACHE_DIR=.venv-lowest/numba .venv-lowest/bin/pytest -n auto $(TESTS)

# The papers' own numbers of repeats where an hour suffices for all, fewer of the rest; goes on where it was stopped.
papers: $(READY)
	nohup nice -n 19 $(BIN)/dpconvex reproduce all --within 60 --out docs/reproduction > papers.log 2>&1 &

clean:
	rm -rf .venv .venv-lowest build dist site reproduction/build docs/gallery docs/reference/api

$(READY): pyproject.toml reproduction/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[dask,dev,plots,studio,test]" -e ./reproduction
	touch $@

.venv/.docs: $(READY)
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[docs]"
	touch $@
