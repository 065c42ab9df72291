VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
TEST_EXTRAS = test,mcp,postgres,scan,service
PEER = nvidia-resiliency-ext==0.7.0

ROOM =
TESTS = tests$(if $(ROOM),/$(ROOM))
QUICK = $(addprefix tests/,core scrub search registry engine)
TORCHES = 2.4.1 2.6.0 2.9.1 2.12.1 2.15.0 # the oldest that pyproject.toml allows, the newest that was tried, and some between
WHOLE_TORCHES = 2.9.1 2.15.0 # of these the whole launch tests, of the others a smoke
RECORDING_TORCHES = 2.12.1 2.15.0 # whose Flight Recorder has gloo's collectives; of 2.9.1 it has none

unexport PYTHONDONTWRITEBYTECODE # what was compiled once is read by thousands of processes
.SECONDARY: # an environment that took minutes to install is kept
.PHONY: demo test tests-alone compiled fuzz quick test-torch coverage packages peer lint types rooms check bench docs clean

demo: $(VENV)/.base
	PATH="$(abspath $(BIN)):$$PATH" bash examples/demo.sh

# Everything, or with ROOM=bisect the tests of one room. What keeps one core busy runs beside what keeps another.
test:
	$(MAKE) --jobs 3 packages peer $(VENV)/.test
	$(MAKE) --jobs 3 $(if $(ROOM),,lint) compiled
	$(MAKE) --jobs 3 $(if $(ROOM),,types rooms) tests-alone

# Of four workers one and a half wait for a service at any time.
tests-alone:
	$(BIN)/python -m pytest -n 6 --dist loadgroup $(TESTS)

# Every worker imports all tests: two processes compile them and what they import, so that six do not. Whatever is wrong
# with a test is told by the worker that meets it.
compiled: $(VENV)/.test
	printf '%s\n' $(if $(ROOM),$(TESTS),$(wildcard tests/*/)) | \
	  xargs -P 2 -n 14 $(BIN)/python -m pytest --collect-only -q >/dev/null || true

# With new examples for every property, as many times as it is called.
fuzz:
	AORTA_TESTS_FUZZ=1 $(MAKE) tests-alone

# Without any service: the pure rooms, and the rules of style.
quick: lint
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(QUICK)

# What the launcher asks of torch beyond its public API: standalone, c10d and static with a killed rank for each torch, and
# all launch tests for some. Each has an environment of its own, of 2 GB: the CUDA wheel without the CUDA libraries.
test-torch: packages peer $(addprefix torch-,$(TORCHES))

torch-%: $(VENV)-torch-%/.installed
	$(VENV)-torch-$*/bin/python -m pytest -n 2 --dist loadgroup \
	  $(if $(filter $*,$(WHOLE_TORCHES)),tests/launch,tests/launch/test_smoke.py) \
	  $(if $(filter $*,$(RECORDING_TORCHES)),tests/attribution/test_flight.py)

# Lines and branches of every room that the tests run, in this process or any they start; each of them starts from nothing.
coverage: packages peer
	$(BIN)/pip install --quiet "coverage>=7.10"
	$(BIN)/coverage erase
	-AORTA_TESTS_COLD=1 $(BIN)/coverage run -m pytest -n 4 --dist loadgroup $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/python tools/coverage_by_room.py

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

# The pip that comes with Python 3.11 takes twice as long as a new one.
$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(VENV)/.base: pyproject.toml $(VENV)/.pip
	$(BIN)/pip install --quiet --editable .
	touch $@

# Of twelve thousand files a fifth is ever imported, and compiled then.
$(VENV)/.test: pyproject.toml $(VENV)/.pip
	$(BIN)/pip install --quiet --no-compile --editable ".[$(TEST_EXTRAS)]"
	touch $@ $(VENV)/.base

$(VENV)-torch-%/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-torch-$*
	$(VENV)-torch-$*/bin/pip install --quiet --editable ".[$(TEST_EXTRAS)]"
	$(VENV)-torch-$*/bin/pip install --quiet --no-deps torch==$*
	$(VENV)-torch-$*/bin/pip install --quiet filelock fsspec jinja2 networkx "numpy<2" sympy
	$(PYTHON) tools/stub_cuda_libraries.py $(abspath $(VENV)-torch-$*)/bin/python
	ln -sfn $(abspath $(VENV))/peer $(VENV)-torch-$*/peer
	touch $@

# The peer in a directory of its own. Its wheels ask for a newer Python and C library than this one; only its profiler does.
$(VENV)/peer/.installed: tests/support/services/peer_requirements.txt $(VENV)/.pip
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/peer --no-deps --only-binary :all: \
	  --python-version 3.12 --platform manylinux_2_39_$$(uname -m) $(PEER)
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/peer --no-deps -r $<
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-torch-* .coverage* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
