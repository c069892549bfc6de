# Everything from a fresh clone: only Python 3.11+, make and a package index are needed. TORCH_INDEX names another package index for
# torch alone: with PyTorch's own for CPUs, `make run` installs 2 GB and not 6.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WITH_TESTS := $(VENV)/.installed-with-tests
WITH_DOCS := $(VENV)/.installed-with-docs
WITH_TRACKERS := $(VENV)/.installed-with-trackers
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
BENCHMARK := .venv-benchmark/.installed
RLLIB := .venv-rllib/.installed
REJAX := .venv-rejax/.installed
RESULTS ?= results
REGISTRY ?=
TAG ?=
TARGETS ?= gpu cpu
TORCH_INDEX ?=
BUILDER ?= $(notdir $(firstword $(shell command -v docker podman buildah)))
CLUSTER ?= ../shared/cluster
CLUSTER_TESTS ?= tests/cluster
SLURM ?= ../shared/slurm
SLURM_TESTS ?= tests/slurm
# One process of tests for each processor, from 2 to 8, with up to 2 GB of memory each. Three on two processors took as long as two.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, max(2, len(os.sched_getaffinity(0)))))')
LONG ?= slow
MANIFESTS := workflows/manifests
TEMPLATES := containers/kubernetes/templates

.PHONY: help run test test-long test-machines test-cluster test-slurm mutants lint manifests messages images benchmark benchmark-long gpu strength learning learning-long docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'make: $(PYTHON) is too old: Python 3.11 or newer is needed; PYTHON=… chooses another'; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP_INSTALL) --index-url $(TORCH_INDEX) torch)
	$(PIP_INSTALL) --editable .
	@touch $@

$(WITH_TESTS): $(INSTALLED)
	$(PIP_INSTALL) --editable '.[test]'
	@touch $@

$(WITH_TRACKERS): $(WITH_TESTS)
	$(PIP_INSTALL) --editable '.[test-trackers]'
	@touch $@

$(WITH_DOCS): $(INSTALLED)
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $@

run: $(INSTALLED) ## three runs of PPO on CartPole (50k steps each) on this machine; ends with where to look
	@$(BIN)/python -m workflows.submit ppo --local -p game=cartpole -p runs=3 -p epochs=196 -p outdir=$(RESULTS)/cartpole

# WORKERS processes share the processors: with threads of PyTorch's in each, they would take an eighth longer.
test test-long: export OMP_NUM_THREADS := 1

test: $(WITH_TESTS) lint ## the quick tests, in WORKERS processes, and the static checks
	$(BIN)/python -m pytest -m 'not slow and not cluster and not slurm and not gpu' --numprocesses $(WORKERS) --dist worksteal

test-long: $(WITH_TRACKERS) ## the long tests, in WORKERS processes: kills, learning, whole experiments, each further game or place of a quick test (LONG: which)
	$(BIN)/python -m pytest -m '$(LONG) and not cluster and not slurm and not gpu' --timeout 1800 --numprocesses $(WORKERS) --dist worksteal

test-machines: $(WITH_TESTS) ## the pipeline, and the quick tests that a machine can break, as on machines unlike this one (VARIANTS: only these words, also one condition alone; OVERCOMMIT=2, FULL=1)
	@OVERCOMMIT="$(OVERCOMMIT)" FULL="$(FULL)" $(BIN)/python -m tests.machines $(VARIANTS)

mutants: $(WITH_TESTS) ## small mistakes in losses, targets and statistics, which the quick tests must notice: 20 minutes (COUNT of them, drawn with SEED; MEANING=1: those of meaning.toml)
	$(BIN)/python -m tests.mutants --count $(or $(COUNT),300) --seed $(or $(SEED),0) $(if $(MEANING),--meaning)

lint: $(WITH_TESTS) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(WITH_DOCS) ## the documentation as a site in docs/_build; a warning, such as a dead link, fails
	$(BIN)/python -m sphinx --nitpicky --fail-on-warning --keep-going --fresh-env --write-all --quiet --builder html docs docs/_build
	@echo 'open docs/_build/index.html'

manifests: $(INSTALLED) ## render workflows/manifests/*.yaml and the workflow templates again
	$(BIN)/python -m workflows.dag.committed $(MANIFESTS) $(TEMPLATES)

messages: $(INSTALLED) ## make agents/transport/learner_pb2.py of learner.proto again
	$(PIP_INSTALL) grpcio-tools
	$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. agents/transport/learner.proto
	@sha256sum agents/transport/learner.proto | sed 's/^/# sha256 /' >> agents/transport/learner_pb2.py

$(BENCHMARK): pyproject.toml
	$(PYTHON) -m venv .venv-benchmark
	.venv-benchmark/bin/python -m pip install --quiet --disable-pip-version-check 'stable-baselines3[extra]' sb3-contrib ale-py 'gymnasium[mujoco]' minatar
	@touch $@

$(RLLIB): pyproject.toml
	$(PYTHON) -m venv .venv-rllib
	.venv-rllib/bin/python -m pip install --quiet --disable-pip-version-check 'ray[rllib]>=2.50' torch ale-py opencv-python-headless
	@touch $@

$(REJAX): pyproject.toml
	$(PYTHON) -m venv .venv-rejax
	.venv-rejax/bin/python -m pip install --quiet --disable-pip-version-check rejax 'gymnax<1'
	@touch $@

benchmark: $(WITH_TESTS) $(BENCHMARK) $(RLLIB) $(REJAX) ## speed of training and of the search, against Stable-Baselines3, XLA, RLlib and this machine's limits (CASES: only these)
	$(BIN)/python -m tests.benchmarks $(CASES)

benchmark-long: $(WITH_TESTS) ## 20 minutes of a learner slowed tenfold, whose memory must stay flat
	$(BIN)/python -m tests.benchmarks.limits --case memory --minutes 20

gpu: ## what holds on CUDA, and how fast, in eight minutes, with the Python that PYTHON names (docs/gpu.md; GPU_OPTIONS='--minutes 60 --part breakout')
	@$(PYTHON) -m tests.gpu $(GPU_OPTIONS)

images: ## build the images (TARGETS; the CPU's with TORCH_INDEX) with docker, podman or buildah (BUILDER), and push them to REGISTRY if there is one; TAG, IMAGE_OPTIONS, PUSH_OPTIONS
	@source=$$(containers/tag); tag="$(or $(TAG),$$source)"; [ "$$tag" ] || exit 2; image=$(if $(REGISTRY),$(REGISTRY)/)rl:$$tag; \
	set -e; for target in $(TARGETS); do \
		$(BUILDER) build $(IMAGE_OPTIONS) --file containers/Dockerfile --target $$target --build-arg SOURCE=$$source \
			$$([ $$target = gpu ] || echo '$(addprefix --build-arg TORCH_INDEX=,$(TORCH_INDEX))') --tag $$image-$$target .; \
		$(if $(REGISTRY),$(BUILDER) push $(PUSH_OPTIONS) $$image-$$target;) \
	done; echo "submit with: $(foreach target,$(TARGETS),-p $(target)_image=$$image-$(target))"

# Only a machine that can have no cluster skips: up ends with 2 without root, with 3 without Argo's programs, with 126 or 127 where it is
# not there. A cluster that ran before goes on, and so does what there is of one that failed to start: down would remove its logs.
test-cluster: $(WITH_TESTS) ## the tests on a real Kubernetes with Argo on this machine (CLUSTER: the scripts that start and stop one; CLUSTER_TESTS)
	@(. $(CLUSTER)/settings; alive kube-apiserver) 2>/dev/null && down=: || down=$(CLUSTER)/down; \
	$(CLUSTER)/up >/dev/null; up=$$?; \
	case $$up in \
		0) eval "$$($(CLUSTER)/env)"; export CLUSTER=$(CLUSTER);; \
		2|3|126|127) echo 'test-cluster: no cluster can be had here; its tests are skipped'; down=:;; \
		*) echo "test-cluster: $(CLUSTER)/up ended with $$up; $(CLUSTER)/down stops what has started" >&2; exit $$up;; \
	esac; \
	$(BIN)/python -m pytest $(CLUSTER_TESTS) -m cluster --durations=0; ended=$$?; $$down; exit $$ended

# As for the cluster: up ends with 2 without root, with 3 where Slurm is not installed and cannot be.
test-slurm: $(WITH_TESTS) ## the tests on a real Slurm on this machine (SLURM: the scripts that start and stop one; SLURM_TESTS)
	@(. $(SLURM)/settings; alive slurmctld) 2>/dev/null && down=: || down=$(SLURM)/down; \
	$(SLURM)/up >/dev/null; up=$$?; \
	case $$up in \
		0) eval "$$($(SLURM)/env)"; export SLURM=$(abspath $(SLURM));; \
		2|3|126|127) echo 'test-slurm: no Slurm can be had here; its tests are skipped'; down=:;; \
		*) echo "test-slurm: $(SLURM)/up ended with $$up; $(SLURM)/down stops what has started" >&2; exit $$up;; \
	esac; \
	$(BIN)/python -m pytest $(SLURM_TESTS) -m slurm --durations=0; ended=$$?; $$down; exit $$ended

learning: $(WITH_TESTS) $(BENCHMARK) ## the returns that the presets reach on an unused seed, held against bounds and against Stable-Baselines3 (ALGORITHMS, GAMES: only these)
	$(BIN)/python -m tests.benchmarks.learning --record docs/results $(addprefix --algorithm ,$(ALGORITHMS)) $(addprefix --game ,$(GAMES))

strength: $(WITH_TESTS) ## AlphaZero's Connect Four after 10 minutes, three runs, one of which goes on to an hour, against players of known strength
	$(BIN)/python -m tests.benchmarks.strength --outdir $(RESULTS)/strength
	$(BIN)/python -m tests.benchmarks.strength --outdir $(RESULTS)/strength --runs 1 --minutes 10 --minutes 30 --minutes 60

learning-long: $(WITH_TESTS) $(BENCHMARK) ## what takes hours: returns beside Stable-Baselines3's on MuJoCo and MinAtar, SAC's LunarLanderContinuous for the 500k steps of its preset, three hours of Connect Four
	$(BIN)/python -m tests.benchmarks.beside_stable_baselines3 --record docs/results
	$(BIN)/python -m tests.benchmarks.learning --long --record docs/results
	$(BIN)/python -m tests.benchmarks.strength --outdir $(RESULTS)/strength --minutes 10 --minutes 30 --minutes 60

clean: ## remove the environments, caches and the built documentation (results stay)
	rm -rf docs/_build docs/reference/generated $(VENV) .venv-3.* .venv-benchmark .venv-rllib .venv-rejax .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
