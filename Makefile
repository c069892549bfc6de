# Everything from a fresh clone: only Python 3.11+, make and a package index are needed.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCHMARK := .venv-benchmark/.installed
RESULTS ?= results
MANIFESTS := workflows/manifests

.PHONY: help run test test-long lint manifests benchmark learning clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'make: $(PYTHON) is too old: Python 3.11 or newer is needed; PYTHON=… chooses another'; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

run: $(INSTALLED) ## three runs of PPO on CartPole (50k steps each) on this machine; ends with where to look
	@$(BIN)/python -m workflows.submit ppo --local -p game=cartpole -p runs=3 -p epochs=196 -p outdir=$(RESULTS)/cartpole

test: $(INSTALLED) lint ## the quick tests and the static checks: under 10 minutes
	$(BIN)/python -m pytest -m 'not slow and not cluster'

test-long: $(INSTALLED) ## the long tests: kill soaks, coverage simulations
	$(BIN)/python -m pytest -m 'slow and not cluster' --timeout 1800

lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

manifests: $(INSTALLED) ## render workflows/manifests/*.yaml again
	$(BIN)/python -m workflows.experiment $(MANIFESTS)

$(BENCHMARK): pyproject.toml
	$(PYTHON) -m venv .venv-benchmark
	.venv-benchmark/bin/python -m pip install --quiet --disable-pip-version-check 'stable-baselines3[extra]' ale-py
	@touch $@

benchmark: $(INSTALLED) $(BENCHMARK) ## training speed against Stable-Baselines3 and against this machine's limits
	$(BIN)/python -m tests.benchmarks.throughput

clean: ## remove the environments and caches (results stay)
	rm -rf $(VENV) .venv-benchmark .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
