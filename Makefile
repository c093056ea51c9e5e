# The stamps in .venv remember what is installed: a second run compares file times and goes on at once.
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK = 1

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --require-hashes
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header
RUN := $(BIN)/python -m tests.run

.DEFAULT_GOAL := help
.PHONY: help serve port test test-all check unit docs bench jars postman sbom format lock clean moved
.NOTPARALLEL:

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

serve: port .venv/serve jars  ## Install what is missing and serve on FIRN_PORT (8080), data under FIRN_HOME (./.firn)
	@exec $(BIN)/python -m service serve

port:
	@.ci/port

# What the tests of everything but pure values need.
SERVICE := .venv/dev jars postman/node_modules/.installed

test: $(SERVICE)  ## Install what is missing and run the checks and the tests; GROUP=faults for one group of them
	@$(RUN) $(GROUP)

test-all: $(SERVICE)  ## Every variant, more examples and large sizes too; LARGE=0 leaves out the sizes that take hours
	@$(RUN) --all $(if $(filter 0,$(LARGE)),--without-large)

check: .venv/dev  ## Format, lint, strict types, import arrows, the documentation site
	@$(RUN) checks

unit: .venv/dev  ## The tests that need no JVM
	@$(RUN) unit

docs: .venv/dev  ## Serve the documentation on localhost:8000
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr localhost:8000

bench: .venv/serve jars bench/.venv/installed bench/.dlt/installed  ## Measure beside other tools, into bench/results; PART=2 for one part
	@$(BIN)/python -m bench.run $(PART)

jars: .venv/serve  ## Fetch the Java libraries that Spark needs, and prepare their classes for quick starts
	@$(BIN)/python -m service jars

postman: .venv/serve  ## Generate the Postman collection from the handlers' examples
	$(BIN)/python -m postman.generate

sbom: .venv/serve  ## List the software that the service consists of, as CycloneDX JSON in dist/
	@$(BIN)/python -m scripts.sbom

format: .venv/dev  ## Format the code and fix what lint can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: .venv/dev  ## Generate the lock files from pyproject.toml and postman/package.json
	$(COMPILE) --group build -o requirements-build.lock
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) bench/requirements.in -o bench/requirements.lock
	$(COMPILE) bench/dlt.in -o bench/dlt.lock
	cd postman && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

# A virtual environment works only where it was made, and only as long as its Python is there.
.venv/made: $(if $(realpath $(BIN)/python),$(if $(filter-out $(CURDIR),$(shell cat .venv/made 2>&1)),moved),moved)
	@.ci/venv
	@echo '$(CURDIR)' > $@

# PySpark comes as source: it is built with the locked setuptools, not with whatever is newest today.
.venv/packages: requirements-build.lock requirements.lock .venv/made
	@echo "firn: installing Python packages (PySpark alone is 450 MB; once)"
	@$(INSTALL) --quiet -r requirements-build.lock
	@$(INSTALL) --no-build-isolation -r requirements.lock
	@touch $@

.venv/serve: pyproject.toml .venv/packages
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: requirements-dev.lock .venv/serve
	@echo "firn: installing what the tests need"
	@$(INSTALL) --quiet --no-build-isolation -r requirements-dev.lock
	@touch $@

# An environment of their own: what we measure beside must not decide what we run on.
bench/.venv/installed: bench/requirements.lock .venv/made
	@echo "firn: installing what the measurements compare with"
	@$(BIN)/python -m venv --clear bench/.venv
	@bench/.venv/bin/python -m pip install --quiet --require-hashes -r bench/requirements.lock
	@touch $@

# dlt's requirements exclude those of the others.
bench/.dlt/installed: bench/dlt.lock .venv/made
	@$(BIN)/python -m venv --clear bench/.dlt
	@bench/.dlt/bin/python -m pip install --quiet --require-hashes -r bench/dlt.lock
	@touch $@

# Without Node.js, or where this fails, the one test that needs it says so.
postman/node_modules/.installed: postman/package-lock.json
	@if command -v npm >/dev/null && command -v node >/dev/null; then \
		echo "firn: installing newman"; \
		(cd postman && npm ci --no-audit --no-fund --no-update-notifier --loglevel=error) && touch $@ || echo "firn: newman was not installed"; \
	fi

clean:  ## Remove what make and the tests made, but no data
	rm -rf .venv bench/.venv bench/.dlt bench/.work postman/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build site
	find service handlers tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
