# The commands of the README: `make verify`, `make test` and `make proofs`. Everything is installed into .venv, Coq by apt-get.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# versions that are known to work together; `make CONSTRAINTS= test` takes the newest instead
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS:%=-c %)

# as many processes as there are cores, a file at a time each: what a file prepares for its tests is prepared once; one that
# dies ends the run, which would wait for it
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile --max-worker-restart 0

.PHONY: verify proofs checker proofs-check test full kernels lint certificates exhaustive size wheel docs gpu torch clean

verify: $(VENV)/.core
	$(BIN)/utfproof verify

proofs:
	$(PYTHON) proofs/check.py

# the verified checker, proofs/checker/utfcheck: Coq's theories, what they rest on, OCaml
checker:
	$(PYTHON) proofs/checker/build.py

proofs-check:
	$(PYTHON) proofs/check.py --coqchk

# the first tier: minutes, and nothing but this package and pytest; what needs more is skipped, with a line that says so
test: $(VENV)/.test
	$(PYTEST)

# both tiers, with PyTorch, plots, clusters and solvers
full: $(VENV)/.dev
	$(PYTEST) -m 'not exhaustive and not gpu'

# the numerical tests once for each kernel of OpenBLAS that this processor can run
kernels: $(VENV)/.test
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .ci/kernels $(filter-out OMP% OPENBLAS%,$(PYTEST))

exhaustive: $(VENV)/.dev
	$(BIN)/python -m pytest -m exhaustive

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/sentences.py
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .github/workflows

certificates: $(VENV)/.core
	$(BIN)/utfproof check certificates/ --numpy

# the paper's training cells that have no result yet, until HOURS are spent; goes on where it stopped
HOURS ?= 1
gpu: $(VENV)/.dev
	$(BIN)/python scripts/gpu.py --hours $(HOURS)

# PyTorch, for training, for modules and for other devices
torch: $(VENV)/.torch

# the documentation site, into out/site; warnings are errors, and nothing is fetched while it is built
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean

# lines by room, tracked files and words of the docs
size:
	$(PYTHON) scripts/size.py

# the wheel and the sdist, and the wheel used in a fresh environment; EXTRAS=plots,torch with extras
wheel:
	PYTHON=$(PYTHON) scripts/smoke_wheel.sh $(EXTRAS)

$(VENV)/.core: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev,torch,plots,cluster]'
	touch $@

$(VENV)/.torch: $(VENV)/.core
	$(PIP) -e '.[torch]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) proofs/build proofs/checker/build proofs/checker/utfcheck .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
