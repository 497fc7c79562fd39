# The commands of a checkout. Each works alone, straight after the clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What Spark's JVM runs, if there is a javac; everything works without it.
JAR := $(BIN)/python spark_plugin/java/build.py

.PHONY: demo test test-rest test-all lint bench soak docs dist clean

demo: $(VENV)/.spark
	@$(JAR)
	$(BIN)/offsetlog demo

# One test after another: make test PARALLEL=
PARALLEL ?= -n 3 --dist loadfile --no-loadscope-reorder
# All tests on one line of Spark: make test SPARK=4.1
SPARK ?=
# The tests that find bugs quickly, and the checks of the code (tests/test_lint.py).
test: $(VENV)/.test
	@$(JAR)
ifeq ($(SPARK),)
	$(BIN)/python -m pytest --tier quick $(PARALLEL) $(PYTEST_ARGS)
else
	$(BIN)/python -m tests.lines $(SPARK) --all $(PARALLEL) $(PYTEST_ARGS)
endif

# Everything else. The stories on the other lines of Spark, and without a javac: make test-rest LINES=
LINES ?= $(if $(PYTEST_ARGS),,4.0 4.1 4.3 no-javac)
test-rest: $(VENV)/.rest
	@$(JAR)
	$(BIN)/python -m tests.spark_plugin.jvm
	$(if $(LINES),$(BIN)/python -m tests.lines $(LINES))
	$(BIN)/python -m pytest --tier rest $(PARALLEL) $(PYTEST_ARGS)

test-all:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

lint: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One figure: make bench ONLY=name. A quick look: make bench ARGS=--short
bench: $(VENV)/.rest
	@$(JAR)
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

# The long campaign, in minutes: make soak MINUTES=240. Only some: make soak ARGS="--only local"
MINUTES ?= 60
soak: $(VENV)/.test
	@$(JAR)
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

# The documentation as a site, on http://127.0.0.1:8000 until Ctrl-C.
PORT ?= 8000
docs: $(VENV)/.rest
	$(BIN)/python -m sphinx -W --keep-going -q -b html -c docs -d build/docs/doctrees . build/docs/html
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs/html $(PORT)

# The wheel and the sdist of a release, with a jar for each line of Spark; the same commit gives the
# same bytes.
dist: $(VENV)/.dist
	$(JAR) --needed
	$(BIN)/python -m tests.lines 4.0 4.1 --jar
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

$(VENV)/.spark: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "Installing offsetlog and Spark into $(VENV); the first time this downloads some 450 MB."
	$(PIP) -c constraints.txt -e '.[spark,page]' deltalake
	touch $@

$(VENV)/.test: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/.spark

# What a release is built in: nothing else can get into it.
$(VENV)/.dist: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e '.[spark]' build setuptools twine
	touch $@

$(VENV)/.rest: $(VENV)/.test
	$(PIP) -c constraints.txt -e '.[rest]'
	touch $@

clean:
	rm -rf $(VENV) .cache build dist *.egg-info
