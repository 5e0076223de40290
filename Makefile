# Two commands are enough: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint unit rules e2e controlplane bench docs fuzz clean

demo: $(STAMP)
	$(BIN)/nodeguard demo

test: lint unit rules e2e

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nodeguard needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/pytest tests/unit

rules: $(STAMP)
	$(BIN)/nodeguard rules check
	$(BIN)/nodeguard rules test

# The real control plane is built once, about 7 minutes on 2 cores, and kept outside the checkout. Without Go
# the tests that need it say so and are skipped, unless CI=true.
controlplane: $(STAMP)
	$(BIN)/python -m tests.e2e.controlplane.build

e2e: $(STAMP)
	-@$(BIN)/python -m tests.e2e.controlplane.build
	$(BIN)/pytest tests/e2e

bench: $(STAMP)
	$(BIN)/python -m bench

# docs/rules.md, docs/signals.md and docs/xids.md, from what the agent judges by.
docs: $(STAMP)
	$(BIN)/nodeguard explain pages docs

# A million inputs a parser and engine: hours. FUZZ narrows it: make fuzz FUZZ="kmsg_records --runs 50000"
fuzz: $(STAMP)
	-$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	nice $(BIN)/python -m tests.fuzz $(FUZZ)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
