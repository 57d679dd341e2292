# Everything below needs only Python >= 3.11, pip and make; installs go into .venv and nowhere else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_DIR ?= demo-output
# Worker processes of pytest.  loadgroup keeps a group of tests (a file, or all that start MPI or Ray) in one
# process; groups begin in the order of tests/conftest.py.
JOBS ?= 2
SPREAD := -n $(JOBS) --dist loadgroup --no-loadscope-reorder
PYTEST_ARGS ?=
# Modules are compiled when they are first imported, not all of them beforehand: most never are.  So Python must
# keep what it compiles, or each of the many processes of the tests would compile it again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
PIP := $(BIN)/python $(INSTALL)

.DEFAULT_GOAL := help
.PHONY: help demo test test-processors lint docs browser package dist dist-short bench reproduce clean

help:
	@echo "make demo       install the basics and run a tour: a figure of the paper, a replay, a recommender"
	@echo "make test       install everything the tests need (MPI and Ray included) and run them"
	@echo "make test-processors  the numerical tests again, with kernels compiled for other processors"
	@echo "make lint       ruff, mypy --strict, and the prose of README, docs and docstrings"
	@echo "make docs       the documentation as a site, in site/; a warning is an error"
	@echo "make browser    look at the page of a run in Chromium, wide and as on a phone"
	@echo "make dist       source package and wheel, checked; the tests run from the unpacked source package"
	@echo "make dist-short the same with a few tests, for continuous integration"
	@echo "make bench      side-by-side measurements; table on screen, benchmarks/results.json on disk"
	@echo "make reproduce  the figures of the paper that need no ratings"
	@echo "make clean      remove .venv and everything that was generated"

# Two stamps: `make demo` must not wait for MPI, Ray and the tools of the tests.
$(VENV)/.python:
	@echo "== creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "asyncqn needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.basics: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "== installing asyncqn with plots and data readers"
	@$(PIP) --editable '.[data,plot]'
	@touch $@

$(VENV)/.everything: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "== installing asyncqn with everything its tests need (about a minute)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.basics

demo: $(VENV)/.basics
	@$(BIN)/python examples/demo.py $(DEMO_DIR)

test: $(VENV)/.everything
	@echo "== pytest, $(JOBS) processes"
	@$(BIN)/python -m pytest $(SPREAD) --durations=10 $(PYTEST_ARGS)

test-processors: $(VENV)/.everything
	@$(BIN)/python .ci/processors.py $(TARGETS) -- -n $(JOBS) $(PYTEST_ARGS)

lint: $(VENV)/.everything
	@echo "== ruff"
	@$(BIN)/ruff check src tests benchmarks examples
	@$(BIN)/ruff format --check src tests benchmarks examples
	@echo "== mypy --strict"
	@$(BIN)/mypy
	@echo "== prose"
	@$(BIN)/python .ci/prose.py

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "== installing asyncqn with what makes its site"
	@$(PIP) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "== the site is in site/"

browser: $(VENV)/.basics
	@$(BIN)/python .ci/browser.py

# The source package and the wheel, checked; the source package is unpacked in build/dist/source.
package: | $(VENV)/.python
	@echo "== building"
	@rm -rf dist build/dist && mkdir -p build/dist
	@$(PYTHON) -m venv build/dist/tools
	@build/dist/tools/bin/python $(INSTALL) "build>=1.2" "twine>=6" "check-wheel-contents>=0.6"
	@build/dist/tools/bin/python -m build --outdir dist . > build/dist/build.log || { tail -30 build/dist/build.log; exit 1; }
	@build/dist/tools/bin/twine check --strict dist/*
	@build/dist/tools/bin/check-wheel-contents dist/*.whl
	@mkdir build/dist/source && tar -xzf dist/*.tar.gz -C build/dist/source --strip-components 1

# The tests run in the unpacked source package, with the environment of a user who installed it from there.
DIST_TESTS ?=
dist: package
	@echo "== tests of the source package"
	@$(PYTHON) -m venv build/dist/venv
	@cd build/dist/source && ../venv/bin/python $(INSTALL) '.[dev]'
	@cd build/dist/source && ../venv/bin/python -m pytest -q $(SPREAD) $(DIST_TESTS)

# The same in short, for continuous integration: a few tests, with the packages that `make test` installed.
SHORT := tests/test_project.py tests/test_houses.py tests/test_parameters.py tests/core/test_schedule.py
dist-short: package $(VENV)/.everything
	@echo "== some tests of the source package"
	@cd build/dist/source && PYTHONPATH=$$PWD/src ../../../$(BIN)/python -m pytest -q $(SHORT)

bench: $(VENV)/.everything
	@$(BIN)/python -m benchmarks.run $(BENCH)

reproduce: $(VENV)/.basics
	@$(BIN)/asyncqn reproduce fig2 fig3 title --processes 2

clean:
	rm -rf $(VENV) build dist site $(DEMO_DIR) .pytest_cache .hypothesis .mypy_cache .ruff_cache benchmarks/results.json
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
