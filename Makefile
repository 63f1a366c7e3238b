# Every command of the project. `make` alone lists them.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python

# A module is compiled once: tests start hundreds of nodes and commands, and without a place to keep
# what is compiled each of them spends most of its start on compiling all of it again.
unexport PYTHONDONTWRITEBYTECODE

# Arguments that the targets pass on, all optional.
T ?= tests
WORKERS ?= 3
ARGS ?=
SUITE ?=
CASE ?=
SEED ?=
SEEDS ?=
SECONDS ?=
ROUNDS ?=
PEERS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run check fix test oldest proto threads baseline lock docs sim chaos bench bench-log cluster package clean

help: ## this list
	@echo "make TARGET [NAME=value ...]"
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
	  while IFS='|' read -r target text; do printf '  %-9s %s\n' $$target "$$text"; done

setup: ## make .venv with everything that development needs
	@tools/setup.sh dev

run: ## start a node on this machine and say what to type next (ARGS="--port 9292")
	@tools/setup.sh run
	@echo 'tidelog: the command is $(BIN)/tidelog; to type it as below: export PATH="$(CURDIR)/$(BIN):$$PATH"'
	@exec $(BIN)/tidelog dev $(ARGS)

check: ## every check that reads the sources; never writes (ARGS="types lint": only these)
	@tools/setup.sh dev
	@tools/setup.sh proto
	@$(PYTHON) -m tools.check $(ARGS)

fix: ## let the formatter and the linter rewrite what they can
	@tools/setup.sh dev
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format
	@$(PYTHON) -m tools.generate_docs

test: ## every test, in WORKERS=3 processes, or those under T=path (ARGS="-k name -x")
	@tools/setup.sh dev
	@$(PYTHON) -m pytest $(if $(filter tests,$(T)),--numprocesses=$(WORKERS)) $(ARGS) $(T)

oldest: ## the tests with the oldest supported version of every dependency; without Spark's
	@tools/setup.sh oldest
	@.venv-oldest/bin/python -m pytest -m "not spark" --ignore=tests/bench --ignore=tests/contract \
	  --ignore=tests/spark --ignore=tests/tidy --ignore=tests/kafka/test_surface.py $(ARGS) $(T)

proto: ## write the generated code beside proto/**/*.proto
	@tools/setup.sh proto
	@tools/generate_proto.sh proto

threads: ## write the files for threads that are generated from their texts for asyncio
	@tools/setup.sh dev
	@$(PYTHON) -m tools.unasync

baseline: ## at a release only: what later contracts must stay compatible with
	@tools/setup.sh dev
	@$(BIN)/buf build --exclude-source-info -o proto/baseline.binpb

lock: ## resolve requirements/*.lock again from pyproject.toml (UPGRADE=1: to the newest)
	@tools/setup.sh dev
	@$(PYTHON) -m tools.lock --write $(if $(UPGRADE),--upgrade)

docs: ## write the generated pages of docs/
	@tools/setup.sh dev
	@$(PYTHON) -m tools.generate_docs

sim: ## the simulated cluster (SUITE=name SEED=n | SEEDS=n SECONDS=n RESUME=1)
	@tools/setup.sh dev
	@$(PYTHON) -m tidelog.chaos.sim $(if $(SUITE),--suite $(SUITE)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(RESUME),--resume) $(ARGS)

chaos: ## real processes under faults: CASE=name (ROUNDS=n | SECONDS=n, SEED=n; PEERS=kafka)
	@tools/setup.sh dev
	@$(PYTHON) -m $(if $(PEERS),bench.failover --peers $(PEERS),tidelog.chaos.live) \
	  $(if $(CASE),--case $(CASE)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: ## measure, beside a peer in the same run with PEERS=kafka, the quorum with PEERS=etcd
	@tools/setup.sh dev
	@$(PYTHON) -m $(if $(filter etcd,$(PEERS)),bench.quorum,bench) \
	  $(if $(PEERS),--peers $(PEERS)) $(ARGS)

bench-log: ## measure the partition log by itself, beside a bare loop (ARGS="--only append,stored,hot,many")
	@tools/setup.sh dev
	@$(PYTHON) -m bench.log $(ARGS)

cluster: ## three nodes on this machine, three replicas each (ARGS="--brokers N --data-dir DIR")
	@tools/setup.sh run
	@echo 'tidelog: the command is $(BIN)/tidelog; to type it as below: export PATH="$(CURDIR)/$(BIN):$$PATH"'
	@exec $(BIN)/tidelog dev --brokers 3 $(ARGS)

package: ## build sdist and wheel, install them in clean environments, print size and dependencies
	@tools/setup.sh dev
	@$(PYTHON) -m tools.package $(ARGS)

clean: ## remove caches and built files; keeps .venv and data
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
