# The commands of a checkout. Each works alone, straight after the clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench soak clean

demo: $(VENV)/.spark
	$(BIN)/offsetlog demo

# One test after another: make test PARALLEL=
PARALLEL ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One figure: make bench ONLY=name. A quick look: make bench ARGS=--short
bench: $(VENV)/.test
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

# The long campaign, in minutes: make soak MINUTES=240. Only some: make soak ARGS="--only local"
MINUTES ?= 60
soak: $(VENV)/.test
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

$(VENV)/.spark: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "Installing offsetlog and Spark into $(VENV); the first time this downloads some 450 MB."
	$(PIP) -c constraints.txt -e '.[spark]'
	touch $@

$(VENV)/.test: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/.spark

clean:
	rm -rf $(VENV) .cache build dist *.egg-info
