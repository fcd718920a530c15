# Every target sets up what it needs by itself: a virtual environment, the dependencies, and a Java
# runtime where there is none. Needs Python 3.10 or newer and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules

# Interpreter that the virtual environment is made with.
PYTHON ?= python3
VENV ?= .venv
# More arguments for pytest, such as PYTEST_ARGS="-k replay".
PYTEST_ARGS ?=
# Processes that run the tests, each with a Spark and servers of its own: some 5 GiB of memory.
WORKERS ?= 2
SIDE_BY_SIDE = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Cells of the matrix, such as MATRIX_ARGS="--quick spark-4.0.5-pyarrow-18.0.0"; all without.
MATRIX_ARGS ?=
# More arguments for the mutations, such as MUTATION_ARGS=--spark.
MUTATION_ARGS ?=
# More arguments for the guard: GUARD_ARGS=--write notes its figures anew.
GUARD_ARGS ?=
# More arguments for the benchmarks, such as BENCH_ARGS="--rounds 3".
BENCH_ARGS ?=
# Arguments of the chaos run, such as CHAOS_ARGS="--kills 1000 --seed 7 --catalog rest".
CHAOS_ARGS ?=

READY := $(VENV)/.ready
BIN := $(VENV)/bin
# What the demo does not need: tests, benchmarks, checks.
TOOLS := $(VENV)/.tools
# Modules are compiled when they are first imported: most of them never are.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --constraint .ci/constraints.txt
# Spark starts many Python processes: none is to compile what another one has compiled.
unexport PYTHONDONTWRITEBYTECODE
# Spark's Python workers run in the same environment.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
# The environment of Iceberg's own Spark runtime.
PEER := .peer/ready.json
# The real servers that tests start.
SERVICES := .services/ready.json
# What the recipes need beside that.
RECIPES := .recipes/ready.json
# Java's archive of Spark's classes, with which each Spark of the tests starts sooner.
CLASSES := .classes/ready
# What Spark needs of Java, found once: lines that set JAVA_HOME, none if the machine's own will do.
WITH_JAVA = source $(READY);

.PHONY: help
help: ## Show what can be done
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2} /^##@/ {print "\n" substr($$0, 5)}' $(MAKEFILE_LIST)

$(READY): pyproject.toml .ci/constraints.txt .ci/find_java.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(INSTALL) --editable . --group demo
	$(BIN)/python .ci/find_java.py > $@.new
	@mv $@.new $@

$(TOOLS): $(READY)
	$(INSTALL) --group dev
	@touch $@

.PHONY: setup
setup: $(TOOLS) ## Make the virtual environment

$(PEER): .ci/peer_environment.py .ci/installing.py $(TOOLS)
	@$(WITH_JAVA) $(BIN)/python .ci/peer_environment.py

.PHONY: peer
peer: $(PEER) ## Make the environment of Iceberg's own Spark runtime, which the sink is held against

$(SERVICES): .ci/services.py .ci/maven.py .ci/installing.py .ci/find_node.py $(TOOLS)
	@$(WITH_JAVA) $(BIN)/python .ci/services.py

.PHONY: services
services: $(SERVICES) ## Build and fetch the real servers that tests start; needs Go and Maven

$(CLASSES): tests/support/spark/class_archive.py $(TOOLS)
	@$(WITH_JAVA) $(BIN)/python tests/support/spark/class_archive.py
	@touch $@

$(RECIPES): .ci/recipe_services.py .ci/prometheus_services.py .ci/maven.py .ci/recipe_environments.py .ci/installing.py $(wildcard examples/*/requirements.txt) $(TOOLS)
	@$(WITH_JAVA) $(BIN)/python .ci/recipe_services.py
	@$(BIN)/python .ci/prometheus_services.py
	@$(WITH_JAVA) $(BIN)/python .ci/recipe_environments.py

.PHONY: recipes
recipes: $(RECIPES) ## Make what the recipes in examples/ need: Kafka, Debezium, Airflow, Dagster, Prometheus and others

.PHONY: classes
classes: $(CLASSES) ## Archive Spark's classes, with which the tests start Spark sooner

##@ Main job
.PHONY: demo
demo: $(READY) ## Stream flights and changes into tables, killed in the middle, and prove that none is lost or doubled
	@$(WITH_JAVA) $(BIN)/python examples/flights.py

##@ Checks
.PHONY: format
format: $(TOOLS) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lint
lint: $(TOOLS) typecheck ## Check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

.PHONY: typecheck
typecheck: $(TOOLS) ## Check types
	$(BIN)/mypy

.PHONY: test
test: $(TOOLS) $(PEER) $(SERVICES) $(CLASSES) ## Run the tests, of matrices whose cells are alike some of each kind
	@$(WITH_JAVA) HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS)

.PHONY: test-all
test-all: $(TOOLS) $(PEER) $(SERVICES) $(CLASSES) $(RECIPES) ## Run all tests, those too that are marked exhaustive
	@$(WITH_JAVA) HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-all} $(BIN)/pytest $(SIDE_BY_SIDE) -m "" $(PYTEST_ARGS)

.PHONY: test-unit
test-unit: $(TOOLS) ## Run the tests that need no Spark
	@$(BIN)/pytest tests/unit tests/properties $(PYTEST_ARGS)

.PHONY: test-integration
test-integration: $(TOOLS) $(PEER) $(SERVICES) $(CLASSES) ## Run the tests with real Spark, and with every catalog and store
	@$(WITH_JAVA) $(BIN)/pytest tests/integration $(PYTEST_ARGS)

.PHONY: test-lowest
test-lowest: $(TOOLS) ## Run what most depends on versions with the lowest ones that are allowed
	@$(WITH_JAVA) $(BIN)/python .ci/test_matrix.py --quick lowest

.PHONY: test-matrix
test-matrix: $(TOOLS) ## Run the core tests with every supported version of Spark and PyArrow
	@$(WITH_JAVA) $(BIN)/python .ci/test_matrix.py $(MATRIX_ARGS)

.PHONY: test-kills
test-kills: $(TOOLS) $(PEER) ## Kill streams and copies at random, 50 times and for 30 minutes, and compare their tables with their sources
	@$(WITH_JAVA) $(BIN)/python tests/faults/kill_stream.py --kills 50
	@$(WITH_JAVA) $(BIN)/python tests/faults/feed_keyed_stream.py --minutes 10 --runtime
	@$(WITH_JAVA) $(BIN)/python tests/faults/maintain_keyed_stream.py --minutes 10 --runtime
	@$(WITH_JAVA) $(BIN)/python tests/faults/copy_by_changes.py --minutes 10 --runtime

.PHONY: test-mutations
test-mutations: $(TOOLS) ## Break one promise after the other in a copy, and see that tests notice each
	@$(WITH_JAVA) $(BIN)/python tests/mutations/run_mutations.py $(MUTATION_ARGS)

.PHONY: guard
guard: $(TOOLS) $(SERVICES) ## Count what writes and commits cost: requests, files, bytes, copies, modules, memory
	@$(WITH_JAVA) $(BIN)/python tests/guard/show.py $(GUARD_ARGS)

.PHONY: chaos
chaos: $(TOOLS) $(PEER) $(SERVICES) ## Kill, cut off and confuse several writers of one table, and compare it with their sources
	@$(WITH_JAVA) $(BIN)/python tests/chaos/run_chaos.py --peer $(CHAOS_ARGS)

##@ Speed
.PHONY: bench
bench: $(TOOLS) ## Measure writes and commits, and draw the charts
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_write.py $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_commit.py $(BENCH_ARGS)

.PHONY: bench-upserts
bench-upserts: $(TOOLS) $(PEER) ## Measure writes by keys beside MERGE INTO of Iceberg's own Spark runtime, and reading afterwards
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_upserts.py $(BENCH_ARGS)
	@$(BIN)/python benchmarks/bench_digests.py $(BENCH_ARGS)

.PHONY: bench-rewrites
bench-rewrites: $(TOOLS) $(PEER) ## Measure rewrites of data files beside rewrite_data_files of Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_rewrites.py $(BENCH_ARGS)

.PHONY: bench-read
bench-read: $(TOOLS) $(PEER) ## Measure reads beside Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_read.py --files 10000,8 $(BENCH_ARGS)

.PHONY: bench-source
bench-source: $(TOOLS) $(PEER) ## Measure streams from table to table beside Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_source.py --keys 1000 --batches 20 $(BENCH_ARGS)

.PHONY: bench-changes
bench-changes: $(TOOLS) $(PEER) ## Measure reads of changes beside the changelog view of Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_changes.py --rows 999983 --keys 1000 --snapshots 5,20 $(BENCH_ARGS)

.PHONY: bench-version-3
bench-version-3: $(TOOLS) $(PEER) ## Measure tables of format version 3 beside those of version 2 and Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_version_3.py $(BENCH_ARGS)

.PHONY: bench-keyed-streams
bench-keyed-streams: $(TOOLS) ## Measure epochs of streams by keys without equality deletes beside such with them
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_keyed_streams.py $(BENCH_ARGS)

.PHONY: bench-tpch
bench-tpch: $(TOOLS) $(PEER) ## Measure TPC-H's queries beside Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_tpch.py $(BENCH_ARGS)

.PHONY: bench-maintained
bench-maintained: $(TOOLS) ## Measure a stream that maintains its own table beside one that is left alone
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_maintained.py --batches 720 --keys 500 --rows 200000 $(BENCH_ARGS)

.PHONY: bench-expiry
bench-expiry: $(TOOLS) $(PEER) ## Measure expiry and the removal of orphan files beside those of Iceberg's own Spark runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_expiry.py --files 100000,1000000 --snapshots 10000,100 $(BENCH_ARGS)

.PHONY: bench-peer
bench-peer: $(TOOLS) $(PEER) ## Measure appends, micro-batches and commits beside Iceberg's own Spark runtime; about an hour
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_peer.py $(BENCH_ARGS)

.PHONY: bench-first
bench-first: $(TOOLS) $(PEER) ## Measure a new user's first table, and the first append of a new session
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_first.py $(BENCH_ARGS)

.PHONY: bench-metrics
bench-metrics: $(TOOLS) ## Measure appends and micro-batches with every report on commits, and with none
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_metrics.py $(BENCH_ARGS)

.PHONY: bench-bad-rows
bench-bad-rows: $(TOOLS) ## Measure appends that look for rows that cannot be written, and appends that do not
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_bad_rows.py $(BENCH_ARGS)

.PHONY: bench-routes
bench-routes: $(TOOLS) $(PEER) ## Measure one DataFrame into many tables beside a write for each table by the runtime
	@$(WITH_JAVA) $(BIN)/python benchmarks/bench_routes.py $(BENCH_ARGS)

##@ Upkeep
.PHONY: reference
reference: $(TOOLS) ## Write what follows from code: pages of options, types, errors, commands, metrics and others, and the board
	$(BIN)/python .ci/write_reference.py
	$(BIN)/python .ci/write_peer_suites.py
	$(BIN)/python .ci/write_board.py

##@ Documentation
.PHONY: docs
docs: $(TOOLS) ## Build the documentation as a site in site/, strictly and without network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.PHONY: docs-serve
docs-serve: $(TOOLS) ## Show the documentation on this machine, at http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --strict --dev-addr 127.0.0.1:8000

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf $(VENV) .peer .services .classes .recipes .matrix .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo build dist site
