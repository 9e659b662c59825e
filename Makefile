# Floe's daily commands. `make` alone lists them.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
# Written last, so an interrupted set-up is repeated.
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help run test jar lint integration bench soak clean toolchain

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: jar ## Run a demonstration: a streaming query whose state lives in Floe
	$(BIN)/floe run

test: jar ## Run the tests, including small Spark queries
	$(BIN)/python -m pytest tests

jar: $(READY) ## Compile the JVM side (only if its sources changed)
	@$(BIN)/python jvm-shim/build.py

lint: $(READY) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

integration: jar ## Run queries on Floe and on Spark's own stores and compare
	$(BIN)/python -m pytest integration -m "not soak"

bench: jar ## Measure Floe beside Spark's own stores
	$(BIN)/floe bench micro

soak: jar ## Run the long tests: growing state, crashes, restarts
	$(BIN)/python -m pytest integration -m soak

clean: ## Remove everything that these commands made
	rm -rf $(VENV) build dist python/*.egg-info python/floe/jars artifacts \
	  .pytest_cache .hypothesis .mypy_cache .ruff_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pyspark goes in first and the package is then built without isolation: an isolated build would
# download its several hundred megabytes a second time.
$(READY): pyproject.toml setup.py | toolchain
	@echo "[1/3] creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@echo "[2/3] installing Spark and the build tools (a few minutes the first time)"
	@$(BIN)/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" \
	  > $(VENV)/build-requirements.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r $(VENV)/build-requirements.txt
	@echo "[3/3] compiling and installing Floe with its development tools"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev,bench]'
	@touch $@

toolchain:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "No $(PYTHON) found. Install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@test -x "$$JAVA_HOME/bin/java" || command -v java >/dev/null 2>&1 || { \
	  echo "No java found. Install a JDK 17 or newer and put it on PATH or into JAVA_HOME." >&2; \
	  exit 1; }
