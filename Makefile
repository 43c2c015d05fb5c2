# Everything a fresh machine needs besides Python 3.11+ and make is installed into .venv.

PYTHON ?= python3
# With more than there are cores the suite ends sooner, but tests that look at the clock may fail.
WORKERS ?= 2
BIN := .venv/bin
READY := .venv/.ready
CHECKED := src tests $(wildcard examples bench tools)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run example test slow portable clients conformance package collector cluster stress bench lint format docs site pins clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## start the daemon of this repository, and print the address to open
	@$(BIN)/dibs serve

example: $(READY) ## two agents and one budget, without dibs and with it
	@$(BIN)/python examples/budget.py

test slow: compiled
	@tests/surfaces/get_browser
	@tests/surfaces/get_shells
	@tests/get_pgbouncer
	@echo "running the $(PART) tests with $(WORKERS) workers …"
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --in-memory --part $(PART) $(ARGS)

test: PART := quick
test: ## run the tests, on SQLite and on a real PostgreSQL, but for those that take long
slow: PART := slow
slow: ## run the tests that take long; CI runs both

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

package: compiled ## build the distributions, install them as users do, and check what comes with them
	@tests/packaging/install $(BIN)/python
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m packaging tests/packaging $(ARGS)

collector: compiled ## build an OpenTelemetry collector (with Go), and send spans and metrics to it
	@tests/telemetry/collector/install
	@$(BIN)/python -m pytest -q -m collector tests/telemetry $(ARGS)

cluster: compiled ## fail a PostgreSQL cluster over again and again, and print what was lost
	@tests/cluster/install
	@$(BIN)/python -m tests.cluster $(ARGS)

stress: compiled ## run the full-size stress tests and print their figures
	@$(BIN)/python -m pytest -q -s -m stress --timeout 3600 $(ARGS)

bench: compiled ## measure against the bare databases and print ratios
	@tests/conformance/install $(BIN)/python
	@$(BIN)/python -m bench $(ARGS)

lint: $(READY) ## check style, format, types and words
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src
	@$(BIN)/mypy $(CHECKED)
	@$(BIN)/python -m tools.words

format: $(READY) ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: $(READY) ## write the references in docs/, the manual, the stub of dibs.aio, the plugin, server.json and llms.txt from the source
	@$(BIN)/python -m tools.async_stub
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.commands
	@$(BIN)/python -m tools.manual
	@$(BIN)/python -m tools.mcp_tools
	@$(BIN)/python -m tools.http_reference
	@$(BIN)/python -m tools.plugin
	@$(BIN)/python -m tools.navigation

site: $(READY) ## build the documentation as a site, in build/site; a warning is an error
	@$(BIN)/python -m tools.site

# Where Python is told to write no bytecode, each of the thousands of commands would compile dibs again.
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
	@echo "making .venv with $$($(PYTHON) --version) …"
	@$(PYTHON) -m venv --clear .venv
endef

$(READY): pyproject.toml constraints.txt
	@echo "setting up (once, and again when pyproject.toml or constraints.txt changes):"
	$(new_venv)
	@echo "getting pip …"
	@$(PIP) install pip==26.3  # older ones write a `dibs` that loads `re`, a fifth of what a hook costs
	@echo "installing dibs and the $$(grep -c == constraints.txt) packages of constraints.txt, half a minute or more …"
	@$(PINNED) $(PIP) install -e '.[postgres,dev]'
	@touch $@
	@echo "ready"

pins: ## take the newest allowed versions into constraints.txt
	$(new_venv)
	@$(PIP) install -e '.[postgres,dev]' editables "$$(sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml)"
	@{ sed '/^[^#]/d' constraints.txt; $(PIP) freeze --exclude-editable; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove .venv, caches and build results
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
