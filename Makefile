# What a fresh machine needs is Python 3.11+ and make. `make demo` and `make test` set up .venv by
# themselves and reuse it while the lock files are unchanged.

PYTHON ?= python3
BIN := .venv/bin
RUN_STAMP := .venv/.run-$(shell cksum requirements.lock pyproject.toml | cksum | cut -d' ' -f1)
DEV_STAMP := .venv/.dev-$(shell cksum requirements-dev.lock pyproject.toml | cksum | cut -d' ' -f1)
EXAMPLES := .venv/examples
EXAMPLES_LOCK := docs/examples/pytorch/requirements.lock
EXAMPLES_STAMP := $(EXAMPLES)/.$(shell cksum $(EXAMPLES_LOCK) | cut -d' ' -f1)
# the index of PyTorch's wheels for CPUs, where pip does not find them by itself
TORCH_INDEX ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Nothing stays behind outside the checkout: what tests write to the temporary folder goes with it.
# A server that the tests start as another user must be able to enter it.
IN_OWN_TMP := sh -c 'tmp=$$(mktemp -d) && chmod 755 "$$tmp" && TMPDIR="$$tmp" "$$0" "$$@"; code=$$?; rm -rf "$$tmp"; exit $$code'

.PHONY: demo test test-examples check lint types imports coverage soak bench dev lock clean

demo: $(RUN_STAMP)
	$(BIN)/hybrid demo

test: $(DEV_STAMP)
	$(IN_OWN_TMP) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

# the examples with what they need, PyTorch for CPUs, in an environment of its own
test-examples: $(DEV_STAMP) $(EXAMPLES_STAMP)
	HYBRID_EXAMPLES_PYTHON=$(CURDIR)/$(EXAMPLES)/bin/python $(IN_OWN_TMP) $(BIN)/python -m pytest docs/examples

check: lint types imports coverage

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_STAMP)
	$(BIN)/mypy

imports: $(DEV_STAMP)
	$(BIN)/lint-imports

# the same tests as `make test`, with the branch coverage that the decision-making packages must keep
coverage: $(DEV_STAMP)
	$(IN_OWN_TMP) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --cov --cov-report=
	$(BIN)/coverage report --fail-under=95 --skip-covered \
	  --include='hybrid/domain/*,hybrid/planning/*,hybrid/reconcile/*,hybrid/ledger/*,hybrid/topology/*,hybrid/estimation/*,policies/*'

# made-up lives, budgets and failing clouds by turns, and storms over real processes beside them, new
# ones each time; SEED=life:N (money, clouds, storm) replays the one that failed, FULL=1 first goes
# through budgets and clouds at full size, which takes hours
MINUTES ?= 20
soak: $(DEV_STAMP)
	$(IN_OWN_TMP) $(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(FULL),--full) $(if $(SEED),--seed $(SEED))

bench: $(DEV_STAMP)
	$(BIN)/python -m benchmarks

dev: $(DEV_STAMP)
	$(BIN)/pre-commit install

# resolves the ranges of pyproject.toml anew; the lock files name versions and hashes, no registry
lock: $(DEV_STAMP)
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --allow-unsafe --extra aws,nvidia,sandbox -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --allow-unsafe --extra aws,gcp,nvidia,postgres,sandbox,bench,dev -c requirements.lock -o requirements-dev.lock pyproject.toml

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv .venv

$(RUN_STAMP): .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(DEV_STAMP): .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@ $(RUN_STAMP)

$(EXAMPLES_STAMP): $(EXAMPLES_LOCK) | .venv/bin/python
	$(PYTHON) -m venv $(EXAMPLES)
	$(EXAMPLES)/bin/pip install --quiet --disable-pip-version-check --require-hashes $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $(EXAMPLES_LOCK) || \
	  { echo "If pip found no such torch: name the index of PyTorch's wheels for CPUs, make test-examples TORCH_INDEX=URL" >&2; exit 1; }
	@touch $@

clean:
	rm -rf .venv build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
