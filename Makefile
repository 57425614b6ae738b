# Everything a fresh Debian 12 machine needs is one of these: `make run`, `make test`, `make bench`, `make lint`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help

BUILD := build
FUZZ_BUILD := build-fuzz
SANITIZE_BUILD := build-sanitize
REPORTS := $(CURDIR)/out/tests
PYTHON ?= python3
JOBS ?= $(shell nproc)
export JOBS
FUZZ_SECONDS ?= 20
FUZZ_TARGETS ?= ir_fuzz run_fuzz
export PYTHON
# TORCH=2.14.1 does all of it with that release of PyTorch, in an environment of its own; the build folder is the same.
ifdef TORCH
VENV := .venv-torch$(TORCH)
export TORCH
else
VENV := .venv
endif
export VENV
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Hundreds of tests start a process that imports PyTorch: from sources that takes three seconds, from bytecode one.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: run
run: package  ## train the example language model and compare it with eager PyTorch (RUN="--cell lstm" passes options)
	@python examples/char_lm.py $(RUN)

# Every part runs, whatever the part before it said; pytest comes last. Sanitizers for all that run_fuzz needs take too
# long to compile here: the unit tests have it without them, with guard pages (run_fuzz_replay).
.PHONY: test
test: build  ## unit tests, golden tests, a short fuzz (the same one each time), Python tests
	@FUZZ_SEED=$${FUZZ_SEED:-1} $(MAKE) FUZZ_TARGETS=ir_fuzz FUZZ_SECONDS=10 --keep-going test-unit test-golden test-fuzz test-python

.PHONY: bench
bench: tools  ## compare with the peers, write benchmarks/results.json, docs/figures/performance.md's table, the README's means and plot (BENCH=--quick for a minute)
	@python benchmarks/compare.py --json benchmarks/results.json $(BENCH)
	@python benchmarks/pages.py benchmarks/results.json

.PHONY: sweep
sweep: tools  ## 200 random shapes beside eager PyTorch, to docs/figures/sweep.md (takes five minutes to half an hour)
	@python benchmarks/sweep.py --markdown docs/figures/sweep.md $(BENCH)

.PHONY: bench-cells
bench-cells: tools  ## measure the cells of examples/cells, write benchmarks/cells.json and docs/figures/cells.md (takes an hour)
	@python benchmarks/cells.py --json benchmarks/cells.json --table docs/figures/cells.md $(BENCH)

.PHONY: docs
docs: build  ## the documentation as a site, out/site: guides, reference of Python and C++ (warnings are errors)
	@scripts/setup.sh docs
	@scripts/docs.sh

.PHONY: wheel
wheel:  ## a wheel in dist/ that needs no compiler and no LLVM, tried where there is nothing but glibc, Python and PyTorch
	@scripts/setup.sh wheel
	@scripts/wheel.sh
	@$(MAKE) test-wheel

.PHONY: test-wheel
test-wheel:
	@scripts/setup.sh wheel
	@python -m pytest tests/wheel

# Each installs what it needs and no more, and says so first. Where nothing is compiled yet, what needs no PyTorch is
# compiled while pip installs that.
.PHONY: package
package:
	@$(MAKE) -j2 setup-run engine
	@scripts/build.sh $(BUILD) package

.PHONY: tools
tools:
	@$(MAKE) -j2 setup-bench engine
	@scripts/build.sh $(BUILD) tools

.PHONY: build
build:  ## compile everything, and make `import weft` and the command `weft` work in .venv
	@$(MAKE) -j2 setup engine
	@scripts/build.sh $(BUILD) all

.PHONY: setup setup-test setup-run setup-bench compile-setup
setup: setup-test
setup-test setup-run setup-bench: setup-%: compile-setup
	@scripts/setup.sh $*
compile-setup:
	@scripts/setup.sh compile

.PHONY: engine
engine: compile-setup
	@[ -f $(BUILD)/build.ninja ] || scripts/build.sh $(BUILD) engine

$(REPORTS):
	@mkdir -p $@

.PHONY: test-unit
test-unit: | $(REPORTS)
	@ctest --test-dir $(BUILD) --output-on-failure -j$(JOBS) -E '^guarded_(avx2|generic)$$' --output-junit $(REPORTS)/ctest.xml

.PHONY: test-golden
test-golden: | $(REPORTS)
	@lit -sv --xunit-xml-output $(REPORTS)/lit.xml $(BUILD)/tests/golden

.PHONY: test-fuzz
test-fuzz:
	@scripts/fuzz.sh $(FUZZ_BUILD) $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Workers share the cores. The few tests with two threads leave one of them without work for long, and OpenMP has it spin
# for that time unless told not to: a twentieth of the tests' CPU time.
SHARING_CORES := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

.PHONY: test-python
test-python:
	@$(SHARING_CORES) python -m pytest --numprocesses $(JOBS) --dist worksteal --junitxml=$(REPORTS)/pytest.xml

.PHONY: test-times
test-times:  ## where the time of the last `make test` went: a table by suite, and the slowest tests
	@python scripts/test_times.py --slowest 40 $(REPORTS)/*.xml

# What has found faults in new releases of PyTorch: what of a step autograd sees, operators of higher order, derivatives
# at ties and bounds, lists of autocast, Dynamo's records.
RELEASES := 2.13.0 2.14.1 2.15.0
RELEASE_TESTS ?= $(addprefix tests/python/, install/test_torch_release.py install/test_torch_private.py \
  scan/test_own_functions.py scan/test_scan.py control/test_higher_order.py scan/test_step_elementwise.py \
  compile/test_derivative_points.py autocast/test_device_autocast.py) explanation/tests/python/test_said.py

.PHONY: test-release
test-release:  ## with TORCH=2.14.1: what has found faults in new releases of PyTorch (RELEASE_TESTS= for all Python tests)
	@$(MAKE) -j2 setup engine
	@scripts/build.sh $(BUILD) package
	@$(SHARING_CORES) python -m pytest --numprocesses $(JOBS) --dist worksteal $(RELEASE_TESTS)

.PHONY: nightly
nightly: build  ## what is too long for every change: 2,000 random configurations of the modules, 1,000 random steps on several threads, 4,000 with gradients inside, 4,000 of many operations, packages on emulated microcontrollers and as WebAssembly, every float through a microcontroller's functions, all ops of PyTorch in a step, unit tests for tiny and for huge caches, every Python test on every release of PyTorch, clang-tidy on each file by itself, sanitizers, an hour of fuzzing
	@WEFT_RANDOM_MODULES=2000 python -m pytest tests/python/modules/test_random_modules.py
	@WEFT_RANDOM_STEPS=1000 python -m pytest tests/python/operator/test_threads.py
	@WEFT_RANDOM_MUTATIONS=1000 python -m pytest tests/python/scan/test_stale.py
	@WEFT_RANDOM_GRADIENTS=4000 WEFT_RANDOM_OPERATIONS=4000 OMP_NUM_THREADS=1 python -m pytest tests/python/scan/test_step_gradients.py tests/python/scan/test_random_operations.py --numprocesses $(JOBS) --dist worksteal
	@WEFT_RANDOM_COMPLEX=1000 OMP_NUM_THREADS=1 python -m pytest tests/python/complex_numbers --numprocesses $(JOBS) --dist worksteal
	@WEFT_RANDOM_STREAMS=400 OMP_NUM_THREADS=1 python -m pytest tests/python/streaming/test_streaming.py tests/python/streaming/test_random_writes.py --numprocesses $(JOBS) --dist worksteal
	@WEFT_SWEEP=all OMP_NUM_THREADS=1 python -m pytest tests/python/scan/test_op_sweep.py tests/python/modules/test_modules_db.py tests/python/device/test_device_op_db.py --numprocesses $(JOBS) --dist worksteal
	@scripts/setup.sh emulators && python -m pytest tests/python/packages
	@WEFT_FUZZ_FILES=500 python -m pytest verification/tests/python/test_formats_fuzz.py
	@WEFT_RANDOM_STEPS=200 $(BUILD)/tests/weft_unit_tests --gtest_brief=1 --gtest_filter='*Threads*'
	@WEFT_ALL_FLOATS=1 $(BUILD)/tests/weft_unit_tests --gtest_brief=1 --gtest_filter='SingleFunctions*'
	@WEFT_CORE=zen1 WEFT_PRIVATE_CACHE_KB=64 WEFT_SHARED_CACHE_KB=512 $(BUILD)/tests/weft_unit_tests --gtest_brief=1
	@WEFT_CORE=other WEFT_PRIVATE_CACHE_KB=65536 WEFT_SHARED_CACHE_KB=1048576 $(BUILD)/tests/weft_unit_tests --gtest_brief=1
	@for release in $(RELEASES); do $(MAKE) test-release TORCH=$$release RELEASE_TESTS= || exit 1; done
	@$(MAKE) lint ALONE=--alone
	@$(MAKE) sanitize FUZZ_SECONDS=1800

.PHONY: fuzz
fuzz: setup  ## fuzz the parser, the passes and what the engine runs for FUZZ_SECONDS a target
	@scripts/fuzz.sh $(FUZZ_BUILD) $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Every part runs, whatever the part before it said.
.PHONY: sanitize
sanitize: build  ## the tests under sanitizers and between guard pages, and fuzzing for FUZZ_SECONDS a target
	@$(MAKE) --keep-going test-guard sanitize-thread sanitize-address test-fuzz

.PHONY: test-guard
test-guard:
	@ctest --test-dir $(BUILD) --output-on-failure -j$(JOBS) -R '^guarded_'

.PHONY: sanitize-thread
sanitize-thread: setup
	@scripts/sanitize.sh $(SANITIZE_BUILD) thread

.PHONY: sanitize-address
sanitize-address: setup
	@scripts/sanitize.sh $(SANITIZE_BUILD) address

.PHONY: lint
lint: build  ## clang-format, clang-tidy, ruff, include directions
	@scripts/setup.sh lint
	@scripts/lint.sh $(BUILD) $(ALONE)

.PHONY: format
format:  ## format C++ and Python in place
	@scripts/setup.sh lint
	@git ls-files '*.cpp' '*.h' | xargs clang-format-19 -i
	@ruff format . && ruff check --fix .

.PHONY: clean
clean:  ## remove what was built; .venv stays
	rm -rf build build-fuzz build-sanitize build-wheel build.log dist out
