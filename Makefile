# Every target works in a fresh clone: it creates .venv and installs pinned dependencies first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: run test slow bench lint workflows docs dist sbom lowest newest coverage mutants papers clean

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

# Workflow files: their schema, and what an attacker could make of them.
workflows: $(READY)
	$(BIN)/python $(INSTALL) -c constraints.txt zizmor check-jsonschema
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml
	$(BIN)/zizmor --offline --no-progress .github

# Pages of names that are gone would be warnings.
docs: .venv/.docs
	rm -rf docs/reference/api
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs site
	@echo "The site is in site/index.html"

# Sdists and wheels, installed and used in an environment of their own.
dist: $(READY)
	$(BIN)/python tools/check_dist.py

# What an installation of the wheel consists of, as CycloneDX: sbom/dpconvex.cdx.json.
sbom: $(READY)
	$(BIN)/python -m build --wheel --outdir sbom .
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/python $(INSTALL) -c constraints.txt sbom/*.whl
	$(BIN)/python $(INSTALL) cyclonedx-bom
	$(BIN)/cyclonedx-py environment .venv-sbom --output-file sbom/dpconvex.cdx.json

# The tests with the newest versions there are, released or not; TESTS=tests/privacy for a part of them.
newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python $(INSTALL) "pip>=25.1"
	.venv-newest/bin/python $(INSTALL) --pre -e ".[dask,plots,studio]" --group test -e ./reproduction
	NUMBA_CACHE_DIR=.venv-newest/numba .venv-newest/bin/pytest -n auto $(TESTS)

# The tests with the oldest versions that pyproject.toml allows; TESTS=tests/privacy for a part of them.
lowest:
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tools/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python $(INSTALL) "pip>=25.1"
	.venv-lowest/bin/python $(INSTALL) -c .venv-lowest/constraints.txt -e ".[dask,plots,studio]" --group test -e ./reproduction
	NUMBA_CACHE_DIR=.venv-lowest/numba .venv-lowest/bin/pytest -n auto $(TESTS)

# The papers' own numbers of repeats where an hour suffices for all, fewer of the rest; goes on where it was stopped.
papers: $(READY)
	nohup nice -n 19 $(BIN)/dpconvex reproduce all --within 60 --out docs/reproduction > papers.log 2>&1 &

clean:
	rm -rf .venv .venv-lowest .venv-newest .venv-sbom build dist sbom site reproduction/build docs/gallery docs/reference/api

$(READY): pyproject.toml reproduction/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) -c constraints.txt "pip>=25.1"  # which knows groups of dependencies
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[dask,plots,studio]" --group dev -e ./reproduction
	touch $@

.venv/.docs: $(READY)
	$(BIN)/python $(INSTALL) -c constraints.txt --group docs
	touch $@
