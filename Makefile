PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 100
SEED ?= 1
REPORT ?= docs/reliability.md
AUDIT := .audit

# Python keeps what it has compiled, whatever the environment says: dozens of processes would compile it all again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test check audit bench simulate mutations faults clean lock

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(VENV)/.ready
	$(BIN)/steer demo

# Many tests wait for processes most of their time, so there are two workers more than two cores have work for.
test: $(VENV)/.ready
	$(BIN)/pytest -n 4 --dist worksteal

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Known vulnerabilities of what is pinned. Where the tool or its database cannot be had, it says so and is no failure.
audit:
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && \
		$(AUDIT)/bin/pip install --quiet --disable-pip-version-check pip-audit; } || rm -rf $(AUDIT)
	@if ! $(AUDIT)/bin/python -c 'import requests; requests.head("https://api.osv.dev", timeout=10)' 2>/dev/null; then \
		echo "not audited: pip-audit or its database cannot be reached"; \
	else \
		$(AUDIT)/bin/pip-audit --disable-pip --require-hashes -s osv --progress-spinner off -r requirements.lock; \
	fi

# All of it writes what came of it, too.
bench: $(VENV)/.ready
	$(BIN)/python -m bench $(if $(QUICK),--quick,--report docs/performance.md)

simulate: $(VENV)/.ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

# Real faults on real processes, about six minutes; writes what came of it.
faults: $(VENV)/.ready
	$(BIN)/python -m tests.faults --seed $(SEED) --seeds $(SEEDS) --report $(REPORT)

# Deliberate faults, one at a time in a copy of the code: each must be caught. Takes some minutes.
mutations: $(VENV)/.ready
	$(BIN)/python -m tests.simulation.mutations

lock:
	pip-compile --quiet --extra dev --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-trusted-host \
		--strip-extras --no-header --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) $(AUDIT) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/results.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
