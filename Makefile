VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
TEST_EXTRAS = test,mcp,postgres,scan,service
PEER = nvidia-resiliency-ext==0.7.0

.PHONY: demo test packages peer lint types rooms check bench docs clean

demo: $(VENV)/.base
	PATH="$(abspath $(BIN)):$$PATH" bash examples/demo.sh

test: packages
	$(MAKE) check peer
	$(BIN)/python -m pytest -n 4 --dist loadgroup tests

packages:
	tools/install-debian-packages.sh

peer: $(VENV)/peer/.installed

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

# The peer in a directory of its own. Its wheels ask for a newer Python and C library than this one; only its profiler does.
$(VENV)/peer/.installed: tests/support/services/peer_requirements.txt $(VENV)/.test
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/peer --no-deps --only-binary :all: \
	  --python-version 3.12 --platform manylinux_2_39_$$(uname -m) $(PEER)
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/peer --no-deps -r $<
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
