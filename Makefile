# Every target makes its own .venv first. Needs Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help setup demo test lint format ui check clean

help:
	@echo "make demo   set up, run PaceMaker on the shipped persona with the embedded model, show the result"
	@echo "make test   set up, run all offline tests"
	@echo "make lint   ruff and mypy --strict"
	@echo "make ui     the MLflow UI on http://127.0.0.1:5000"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/pace-dspy demo

test: $(STAMP)
	@$(BIN)/python -m pytest -q -n 2

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

check: lint test

format: $(STAMP)
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# The store that runs write to, on loopback; no telemetry, no look-ups on the net.
UI_PORT ?= 5000
ui: $(STAMP)
	@case "$$MLFLOW_TRACKING_URI" in http*) echo "runs are logged to $$MLFLOW_TRACKING_URI; look there"; exit 1;; esac; \
	mkdir -p artifacts && MLFLOW_DISABLE_TELEMETRY=true LITELLM_LOCAL_MODEL_COST_MAP=True $(BIN)/mlflow ui \
		--backend-store-uri "$${MLFLOW_TRACKING_URI:-sqlite:///$(CURDIR)/artifacts/mlflow.db}" \
		--host 127.0.0.1 --port $(UI_PORT) --workers 1

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
