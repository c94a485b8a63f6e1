# One entry point: every target first sets up what it needs, in .venv/ and build/ and nowhere else.
#
#   make demo    build, then replay a synthetic job through a switch of software on this machine
#   make test    everything a change must pass: style, types, native tests (plain and sanitized), pytest
#   make checks  of that all but pytest; `make --jobs 3 checks` does side by side what can be
#   make pytest  of that pytest alone
#   make lint    style and types only
#   make docs    the documentation site, in build/site; a warning is an error (needs graphviz for its diagrams)
#   make pictures  docs/pictures anew from runs of the program (Chromium, graphviz; ports 1883, 7420, 7480 and 9420 free)
#   make fuzz    mutated traces through every reader for ETLOOP_FUZZ_SECONDS (600)
#   make bench   the speed of the engine beside the bare kernel's, and of the trace reader beside protobuf's
#   make faults  breaks a rack in every way of docs/faults.md, and writes that table anew (root for all of it)
#   make locks   locks/ anew from constraints.txt and pyproject.toml (asks the package index)
#   make sbom    build/sbom.cdx.json: what an installation consists of, as CycloneDX
#   make wheel   build/dist: a wheel that can be published, with the manylinux tag that its code is consistent with
#   make release  build/release: source, wheels, bill of materials, site, notes and checksums of a clean commit (RELEASE_PYTHONS);
#                 images of controller and agent with RELEASE_ENGINE=docker or podman
#   make try-release  installs that release where pip is alone, and runs the demo, a rack and tests (ports 1883, 7420, 9420 free)
#   make audit   known vulnerabilities of all that the locks name
#   make clean   remove what the other targets made (not demo/ and runs/)
#
# Nothing is done twice: each step leaves a stamp in .venv/stamps and is repeated when what it read is newer.
# Python sources are used in place; C++ sources are rebuilt when they change. PYTHON chooses the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUPPLY := $(VENV)/supply/bin
STAMPS := $(VENV)/stamps
PIP := -m pip --quiet --disable-pip-version-check install --quiet --disable-pip-version-check
# What others made comes from locks/, every file by its hash.
INSTALL := $(BIN)/python $(PIP) --require-hashes --requirement

# One compilation serves the Python modules and the native tests; the other is the sanitized one.
NATIVE_BUILD := build/native
SANITIZED_BUILD := build/sanitized
# ON in continuous integration (.ci/run); changing it compiles everything anew. Sanitized code is always compiled so.
ETLOOP_WERROR ?= OFF
# Without build isolation, so that the pinned tools build it and build/ is reused.
# Ninja has jobs of its own: those of `make --jobs` are not handed to a command that is no make.
INSTALL_OURS := MAKEFLAGS= $(BIN)/python $(PIP) --no-deps --no-build-isolation --config-settings=build-dir=$(NATIVE_BUILD) \
  --config-settings=cmake.define.ETLOOP_TESTS=ON --config-settings=cmake.define.ETLOOP_WERROR=$(ETLOOP_WERROR)

# Compiled once at the installation, as pip does with a wheel; later changes are compiled when they are imported.
ROOMS := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))

# Directories stand for added, renamed and removed files.
NATIVE_SOURCES := CMakeLists.txt $(shell find traffic/native workload/native)
NATIVE_TESTS := $(shell find tests/native)

.PHONY: all demo test checks pytest lint format docs pictures fuzz bench faults locks sbom wheel release try-release audit clean
.DELETE_ON_ERROR:

all: $(STAMPS)/built

demo: $(STAMPS)/built
	$(BIN)/etloop demo

PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: checks
	$(PYTEST)

# All that `make test` does before pytest; its parts may be done side by side (--jobs).
checks: lint $(STAMPS)/supply $(STAMPS)/native-tests $(STAMPS)/native-tests-sanitized

pytest: $(STAMPS)/dev $(STAMPS)/supply $(STAMPS)/native-tests
	$(PYTEST)

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMPS)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMPS)/dev
	$(BIN)/python tools/build_site.py

pictures: $(STAMPS)/dev
	$(BIN)/python -m tools.draw_pictures

fuzz: export ETLOOP_FUZZ_SECONDS ?= 600
fuzz: $(STAMPS)/dev
	$(BIN)/python -m pytest tests/fuzz

bench: $(STAMPS)/dev
	$(BIN)/etloop bench
	$(BIN)/python -m tests.measure.readers
	$(BIN)/python -m tests.measure.schedules
	$(BIN)/python -m tests.measure.startup
	$(BIN)/python -m tests.measure.receive

faults: $(STAMPS)/dev
	@mkdir -p build && rm -f build/faults.jsonl
	ETLOOP_FAULTS=$(abspath build/faults.jsonl) $(BIN)/python -m pytest -v tests/e2e/rack/test_rack_faults.py tests/e2e/rack/test_rack_hostile.py
	$(BIN)/python -m tests.support.rack.rack_under_faults build/faults.jsonl

locks: $(STAMPS)/uv
	@$(BIN)/python tools/write_locks.py $(SUPPLY)/uv

sbom: $(STAMPS)/supply $(STAMPS)/dev
	@mkdir -p build
	@$(SUPPLY)/python tools/write_sbom.py $(BIN)/python build/sbom.cdx.json

wheel: $(STAMPS)/built $(STAMPS)/supply
	@rm -rf build/wheel build/dist
	@MAKEFLAGS= $(BIN)/python -m pip --quiet --disable-pip-version-check wheel --no-deps --no-build-isolation \
	  --config-settings=build-dir=$(NATIVE_BUILD) --wheel-dir build/wheel .
	@PATH="$(abspath $(SUPPLY)):$$PATH" $(SUPPLY)/auditwheel --verbose repair --wheel-dir build/dist build/wheel/etloop-*.whl \
	  > build/auditwheel.log 2>&1 || { cat build/auditwheel.log; exit 1; }
	@ls build/dist

# One interpreter makes a wheel for 3.11, and any later one the wheel of all later ones.
RELEASE_PYTHONS ?= python3.11 python3.12
export RELEASE_ENGINE

release: $(STAMPS)/dev $(STAMPS)/supply sbom docs
	@MAKEFLAGS= $(BIN)/python tools/make_release.py $(RELEASE_PYTHONS)

try-release:
	@$(PYTHON) tools/try_release.py build/release/etloop-* $(PYTHON)

audit: $(STAMPS)/supply
	@$(SUPPLY)/python tools/audit.py $(SUPPLY)/pip-audit

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment and pip.
$(STAMPS)/venv: tools/make_venv.py tools/bootstrap_pip.py
	@echo "creating $(VENV)"
	@$(PYTHON) tools/make_venv.py $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# What the native code is built with.
$(STAMPS)/toolchain: $(STAMPS)/venv locks/build.lock tools/check_build.py
	@$(BIN)/python tools/check_build.py
	@echo "installing build tools"
	@$(INSTALL) locks/build.lock
	@touch $@

# Our packages, both commands and the native modules. Editable: Python files are used where they stand.
$(STAMPS)/built: $(STAMPS)/toolchain locks/run.lock pyproject.toml $(NATIVE_SOURCES)
	@echo "building the native modules and installing etloop (a first build takes a few minutes)"
	@$(INSTALL) locks/run.lock
	@$(INSTALL_OURS) --editable .
	@$(BIN)/python tools/link_package.py $(VENV)/package
	@$(BIN)/python -m compileall -q -j 0 $(ROOMS)
	@touch $@

# Tools of the developer.
$(STAMPS)/dev: $(STAMPS)/built locks/dev.lock
	@echo "installing development tools"
	@$(INSTALL) locks/dev.lock
	@touch $@

# What looks after the parts of others, in an environment of its own: none of it is imported by us.
$(STAMPS)/supply: $(STAMPS)/venv locks/supply.lock
	@echo "installing what writes locks and the bill of materials"
	@$(PYTHON) tools/make_venv.py $(VENV)/supply
	@$(SUPPLY)/python $(PIP) --require-hashes --requirement locks/supply.lock
	@touch $@

# By its version alone: a lock that is out of date, or gone, must not stand in the way of a new one.
$(STAMPS)/uv: $(STAMPS)/venv constraints.txt
	@$(PYTHON) tools/make_venv.py $(VENV)/supply
	@$(SUPPLY)/python $(PIP) --constraint constraints.txt uv
	@touch $@

# Native unit tests, run when they or the engine changed.
$(STAMPS)/native-tests: $(STAMPS)/built $(NATIVE_TESTS)
	$(call native_tests,$(NATIVE_BUILD))
	@touch $@

# With -Og they are compiled in two thirds of the time of -O1, and run about as long.
$(STAMPS)/native-tests-sanitized: $(STAMPS)/toolchain $(NATIVE_SOURCES) $(NATIVE_TESTS)
	@$(BIN)/cmake -S . -B $(SANITIZED_BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DETLOOP_PYTHON=OFF -DETLOOP_TESTS=ON \
	  -DETLOOP_WERROR=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-Og -g1" -DETLOOP_SANITIZE=ON > /dev/null
	$(call native_tests,$(SANITIZED_BUILD))
	@touch $@

# Some tests take ports and addresses of this machine, and run alone (CMakeLists.txt); those of one build run at a time.
define native_tests
	MAKEFLAGS= $(BIN)/cmake --build $(1) --target native_tests
	MAKEFLAGS= flock $(STAMPS) $(BIN)/ctest --test-dir $(1) --parallel 2 --output-on-failure --no-tests=error
	@sed -n '/^skipped: /p' $(1)/Testing/Temporary/LastTest.log
endef
