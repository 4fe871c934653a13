# `make demo` and `make test` are all that a fresh machine needs; `make paper` repeats the papers.
PYTHON ?= python3
DATA ?=
BIN := .venv/bin
WITH_DATA := $(if $(DATA),--data $(DATA))
# The tests of published data look here; they skip where it is empty.
export CALIBJAX_DATA ?= $(DATA)
# Files in their order: the last ones are those of doctests, which are short.
PYTEST = $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
# Programs that are run once are compiled in two thirds of the time with these, where XLA has them.
QUICKLY = --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICK = JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="$$XLA_FLAGS $$(XLA_FLAGS="$(QUICKLY)" $(BIN)/python -c \
	'import jax; jax.devices(); print("$(QUICKLY)")' 2>/dev/null)"
PAPERS = w19 w21 l21 g24
OPTIMISED = $$(grep -rl --include='test_*.py' mark.optimised tests)
# What was compiled for the tests once is kept for the next run, and so are the modules of Python.
CACHE = PYTHONDONTWRITEBYTECODE= JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.cache/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1

.PHONY: demo paper $(PAPERS:%=paper-%) paper-full check test test-slow coverage mutants lint types bench gallery docs clean

$(BIN)/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/report-installed: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[report]'
	touch $@

.venv/installed: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[plot,repro,test]'
	touch $@

demo: .venv/report-installed  ## a page about predictions that ship with the package, in this folder
	$(BIN)/python -m calibjax --demo

paper: $(PAPERS:%=paper-%)  ## quick preset of every paper experiment, into paper_repro/output/
$(PAPERS:%=paper-%): paper-%: .venv/installed  # `make -j2 paper` repeats two papers at a time
	$(BIN)/python -m paper_repro --preset quick --only $* $(WITH_DATA)

paper-full: .venv/installed  ## full size of every paper experiment: hours
	$(BIN)/python -m paper_repro --preset paper $(WITH_DATA)

check: lint types test  ## what every change must pass

test: .venv/installed  # a file stays with one process, which compiles for its tests once
	$(CACHE) $(QUICK) $(PYTEST) -m 'not slow and not optimised'
	$(CACHE) $(PYTEST) -m 'optimised and not slow' $(OPTIMISED)

test-slow: .venv/installed  ## simulations of levels and power, gradients, float32 and what else takes long: an hour
	$(CACHE) $(QUICK) $(BIN)/python -m pytest -n auto -m 'slow and not optimised'
	$(CACHE) $(PYTEST) -m 'optimised and slow' $(OPTIMISED)

coverage: .venv/installed  ## which lines the tests reach, into htmlcov/
	$(BIN)/python -m pip install --quiet pytest-cov
	$(CACHE) $(PYTEST) -m 'not slow' --cov=calibjax --cov-report=term --cov-report=html

SEED ?= 1
N ?= 100
JOBS ?= 2
mutants: .venv/installed  ## share of changed lines that the quick tests notice; ROOM=kernels takes one subpackage
	$(CACHE) $(QUICK) $(BIN)/python -m tests.mutation \
	--seed $(SEED) --num $(N) --jobs $(JOBS) --room '$(ROOM)'

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed  ## pyright, as PyPI has it without a download at its first run
	$(BIN)/basedpyright

bench: .venv/installed  ## times of thirty calls, to compare two checkouts
	$(BIN)/python -m experiments.benchmark.steps

gallery: .venv/installed  ## every figure of the library, into experiments/results/gallery/
	$(BIN)/python -m experiments.gallery --output experiments/results

.venv/docs-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

docs: .venv/docs-installed  ## the documentation, into site/; what is broken in it is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .cache site htmlcov paper_repro/output experiments/output
