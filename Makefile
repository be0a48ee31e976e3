# Every target works in a fresh clone: it creates .venv and installs pinned dependencies first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test slow bench lint docs clean

run: $(READY)
	$(BIN)/dpconvex demo

test: $(READY)
	$(BIN)/pytest -n auto

slow: $(READY)
	$(BIN)/pytest -n auto -m "slow or not slow"

bench: $(READY)
	$(BIN)/python -m benchmarks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

docs: $(READY)
	$(BIN)/python docs/build.py

clean:
	rm -rf .venv build dist site

$(READY): pyproject.toml reproduction/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dask,dev,plots,studio]" -e ./reproduction
	touch $@
