# Everything from a fresh clone: only Python 3.11+, make and a package index are needed.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCHMARK := .venv-benchmark/.installed
RESULTS ?= results
REGISTRY ?=
TAG ?= $(shell git describe --always --dirty 2>/dev/null)
BUILDER ?= $(notdir $(firstword $(shell command -v docker podman buildah)))
IMAGE = $(if $(REGISTRY),$(REGISTRY)/)rl:$(TAG)
CLUSTER ?= ../shared/cluster
CLUSTER_TESTS ?= tests/cluster
MANIFESTS := workflows/manifests

.PHONY: help run test test-long test-cluster lint manifests images benchmark learning clean

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

manifests: $(INSTALLED) ## render workflows/manifests/*.yaml and the tables of the README again
	$(BIN)/python -m workflows.experiment $(MANIFESTS)
	$(BIN)/python -m config.tables README.md

$(BENCHMARK): pyproject.toml
	$(PYTHON) -m venv .venv-benchmark
	.venv-benchmark/bin/python -m pip install --quiet --disable-pip-version-check 'stable-baselines3[extra]' ale-py
	@touch $@

benchmark: $(INSTALLED) $(BENCHMARK) ## training speed against Stable-Baselines3 and against this machine's limits
	$(BIN)/python -m tests.benchmarks.throughput

images: ## build both images with docker, podman or buildah (BUILDER), and push them to REGISTRY if there is one; TAG, IMAGE_OPTIONS, PUSH_OPTIONS
	@set -e; for target in gpu cpu; do \
		$(BUILDER) build $(IMAGE_OPTIONS) --file containers/Dockerfile --target $$target --build-arg SOURCE=$(TAG) --tag $(IMAGE)-$$target .; \
		$(if $(REGISTRY),$(BUILDER) push $(PUSH_OPTIONS) $(IMAGE)-$$target;) \
	done; echo "submit with: -p gpu_image=$(IMAGE)-gpu -p cpu_image=$(IMAGE)-cpu"

test-cluster: $(INSTALLED) ## the tests on a real Kubernetes with Argo on this machine (CLUSTER: the scripts that start and stop one; CLUSTER_TESTS)
	@$(CLUSTER)/up >/dev/null || { echo 'test-cluster: no cluster here; its tests are skipped'; $(BIN)/python -m pytest $(CLUSTER_TESTS) -m cluster -rs; exit 0; }; \
	eval "$$($(CLUSTER)/env)"; export CLUSTER=$(CLUSTER); $(BIN)/python -m pytest $(CLUSTER_TESTS) -m cluster --durations=0; ended=$$?; $(CLUSTER)/down; exit $$ended

learning: $(INSTALLED) ## three runs of every benchmark game with its preset, held against the returns to reach (GAMES: only these)
	$(BIN)/python -m tests.benchmarks.learning $(GAMES)

clean: ## remove the environments and caches (results stay)
	rm -rf $(VENV) .venv-benchmark .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
