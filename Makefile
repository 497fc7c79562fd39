# The commands of a checkout. Each works alone, straight after the clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench soak clean

demo: $(VENV)/.base
	$(BIN)/offsetlog demo

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One figure: make bench ONLY=name. A quick look: make bench ARGS=--short
bench: $(VENV)/.test
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

# The long campaign: make soak SEEDS=1:5000
SEEDS ?= 1:2000
soak: $(VENV)/.test
	$(BIN)/python -m offsetlog.testing.simulation --seeds $(SEEDS)

$(VENV)/.base: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e .
	touch $@

$(VENV)/.test: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/.base

clean:
	rm -rf $(VENV) .cache build dist *.egg-info
