PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 100

.PHONY: demo test check bench simulate clean lock

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(VENV)/.ready
	$(BIN)/steer demo

test: $(VENV)/.ready
	$(BIN)/pytest -n 3

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready
	$(BIN)/python -m bench $(if $(QUICK),--quick)

simulate: $(VENV)/.ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

lock:
	pip-compile --quiet --extra dev --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-trusted-host \
		--strip-extras --no-header --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/results.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
