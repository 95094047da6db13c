# `make demo` and `make test` do all their own set-up in .venv; a second run finds it done.
# Needs make, g++, Python >= 3.10 and its venv module (Debian: apt-get install make g++ python3-venv).

PYTHON ?= python3
BIN := .venv/bin
# The native engine is built from these: its own sources, and the cells, whose C++ text is printed into the build.
ENGINE_SOURCES := $(shell find CMakeLists.txt src/prnn/kernels/cpu src/prnn/cells -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: demo test lint format build clean

demo: build
	$(BIN)/prnn demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: build
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/requirements.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

build: .venv/engine.stamp

.venv/engine.stamp: .venv/requirements.stamp pyproject.toml $(ENGINE_SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

.venv/requirements.stamp: requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "prnn needs Python 3.10 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	touch $@

clean:
	rm -rf .venv build dist .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
