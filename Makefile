VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
TEST_EXTRAS = test,mcp,postgres,scan,service

.PHONY: demo test packages lint types rooms check bench docs clean

demo: $(VENV)/.base
	PATH="$(abspath $(BIN)):$$PATH" bash examples/demo.sh

test: packages
	$(MAKE) check
	$(BIN)/python -m pytest -n 4 --dist loadgroup tests

packages:
	tools/install-debian-packages.sh

check: lint types rooms

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

rooms: $(VENV)/.test
	PYTHONPATH=src $(BIN)/lint-imports

bench: $(VENV)/.test
	$(BIN)/pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks

docs: packages $(VENV)/.test
	PYTHONPATH=src:tests $(BIN)/python tools/screenshots.py

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ".[$(TEST_EXTRAS)]"
	touch $@ $(VENV)/.base

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
