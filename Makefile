# Everything a fresh machine needs besides Python 3.11+ and make is installed into .venv.

PYTHON ?= python3
# With more than there are cores the suite ends sooner, but tests that look at the clock may fail.
WORKERS ?= 2
BIN := .venv/bin
READY := .venv/.ready
CHECKED := src tests $(wildcard examples bench tools)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run example test portable clients conformance cluster stress bench lint format docs pins clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## start the daemon of this repository, and print the address to open
	@$(BIN)/dibs serve

example: $(READY) ## two agents and one budget, without dibs and with it
	@$(BIN)/python examples/budget.py

test: compiled ## run the whole suite, on SQLite and on a real PostgreSQL
	@tests/surfaces/get_browser
	@tests/get_pgbouncer
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

PORTABLE := tests/test_system.py tests/contract/test_leases.py tests/contract/test_work.py \
	tests/surfaces/test_cli_run.py tests/surfaces/test_hooks.py

portable: compiled ## run a part of the suite without what only Linux has, as on macOS
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --portable -k 'not postgres and not http' $(PORTABLE) $(ARGS)

clients: compiled ## run the real agent CLIs against a scripted model
	@tests/clients/install
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m clients --timeout 300 tests/clients $(ARGS)

conformance: compiled ## hold the MCP server against the protocol's own tools
	@tests/conformance/install $(BIN)/python
	@PYTHONPATH=.conformance/python $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal \
		-m conformance tests/conformance $(ARGS)

cluster: compiled ## fail a PostgreSQL cluster over again and again, and print what was lost
	@tests/cluster/install
	@$(BIN)/python -m tests.cluster $(ARGS)

stress: compiled ## run the full-size stress tests and print their figures
	@$(BIN)/python -m pytest -q -s -m stress --timeout 3600 $(ARGS)

bench: compiled ## measure against the bare databases and print ratios
	@tests/conformance/install $(BIN)/python
	@$(BIN)/python -m bench $(ARGS)

lint: $(READY) ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src
	@$(BIN)/mypy $(CHECKED)

format: $(READY) ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: $(READY) ## write the references in docs/, the plugin and server.json from the source
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.commands
	@$(BIN)/python -m tools.mcp_tools
	@$(BIN)/python -m tools.plugin

# Where Python is told to write no bytecode, each of the thousands of commands would compile dibs anew.
.PHONY: compiled
compiled: $(READY)
	@$(BIN)/python -m compileall -q src

# pip hands the constraints on to the build of dibs itself by one of two names, older pip by the first.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt

define new_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "dibs needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up .venv …"
	@$(PYTHON) -m venv --clear .venv
endef

$(READY): pyproject.toml constraints.txt
	$(new_venv)
	@$(PIP) install pip==26.3  # older ones write a `dibs` that loads `re`, a fifth of what a hook costs
	@$(PINNED) $(PIP) install -e '.[postgres,dev]'
	@touch $@

pins: ## take the newest allowed versions into constraints.txt
	$(new_venv)
	@$(PIP) install -e '.[postgres,dev]' editables "$$(sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml)"
	@{ sed '/^[^#]/d' constraints.txt; $(PIP) freeze --exclude-editable; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove .venv, caches and build results
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
