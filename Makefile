# What a reader or a developer types; `make help` lists it. Every target sets up what it needs.

SHELL := bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first of these that is Python 3.11 or 3.12 makes the environment.
PYTHON ?= python3.11 python3.12 python3
# Another package index for torch alone, for example one with CPU builds.
TORCH_INDEX ?=
# One thread per process: the same sums in the same order, and no fight over the cores.
export OMP_NUM_THREADS ?= 1

VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
CLUSTER := .venv-cluster
CODE := $(wildcard src tests notebooks book benchmarks)

.PHONY: help book test test-cluster results check lab lock peers clean setup chromium

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | sed 's/^/  make /' | expand -t 20
	@echo "  TORCH_INDEX=URL names another index for torch, PYTHON=PATH another Python."

book: setup ## Train, execute the chapters, build the book; prints the path of its index.html
	@$(BIN)/rstar2 book build

test: setup chromium ## Run every test, the browser's included
	@$(BIN)/pytest -n 2 --dist loadfile

test-cluster: ## Run verl, Ray and vLLM on the CPU, in .venv-cluster (4 GB)
	$(if $(call READY,$(CLUSTER),$(CLUSTER_FILES)),,$(call INSTALL,$(CLUSTER),$(CLUSTER_FILES),$(PACKAGE),--no-deps))
	@$(CLUSTER)/bin/pytest tests/cluster

results: setup ## Remake the committed records in results/ from scratch (many hours)
	@$(BIN)/rstar2 results remake

check: setup ## Lint, types and the fast tests, for daily work
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy
	@$(BIN)/pytest -m "not browser and not notebook and not thorough" -n 2

lab: setup ## Open JupyterLab
	@$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root)

lock: setup ## Resolve the ranges of pyproject.toml afresh into requirements.txt
	@set -euo pipefail; \
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report $(VENV)/lock.json \
	    $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)") '.[dev]'; \
	{ grep '^#' requirements.txt; $(BIN)/python -c '$(PINS)' $(VENV)/lock.json; } > $(VENV)/lock.txt; \
	mv $(VENV)/lock.txt requirements.txt; \
	git --no-pager diff --stat -- requirements.txt

peers: ## Make .venv-peers: TRL, which `python -m benchmarks.training` measures beside ours
	$(if $(call READY,$(PEERS),$(PEER_FILES)),,$(call INSTALL,$(PEERS),$(PEER_FILES),true))

clean: ## Remove the built book and the caches; .venv, runs/ and results/ stay
	@rm -rf _build build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(CODE) -name __pycache__ -prune -exec rm -rf {} +

# --- the environment -----------------------------------------------------------------------

FILES := requirements.txt pyproject.toml
PEER_FILES := requirements-peers.txt
CLUSTER_FILES := requirements-cluster.txt pyproject.toml

setup:
	$(if $(call READY,$(VENV),$(FILES)),,$(call INSTALL,$(VENV),$(FILES),$(OURS)))

# Of an environment $(1) and the files $(2) that decide it, the pins first: the stamp holds the
# folder and the hashes of the files; it is written when all is installed.
KEY = "$(CURDIR) $$(git hash-object $(2) 2>/dev/null | tr '\n' ' ')"
READY = $(shell [ "$$(cat $(1)/.stamp 2>&1)" = $(KEY) ] && $(1)/bin/python -c '' && echo yes)

# A name on the path may be a shim that answers for no version, so each is asked.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))
FOUND = $(shell for p in $(PYTHON); do "$$p" -c '$(USABLE)' 2>/dev/null && { command -v "$$p"; break; }; done)

NO_GIT := git is missing: install it, then run make again
NO_PYTHON := no Python 3.11 or 3.12 with its venv module (tried: $(PYTHON)): install one, \
    or name one with make PYTHON=/path/to/python3.11
NO_NETWORK := no network: pip reached no package index; connect, then run make again

# What the package itself adds to an environment, after the pins; a kernel only to ours.
PACKAGE = pip --no-deps --no-build-isolation -e .
OURS = $(PACKAGE) \
    && "$$venv/bin/python" -m ipykernel install --sys-prefix --name python3 >>"$$log" 2>&1

# Makes the environment $(1) from the files $(2), with options $(4) of pip, then runs $(3).
# An install that was interrupted leaves .installing behind and is begun again in an empty folder.
define INSTALL
$(if $(shell command -v git 2>/dev/null),,$(error $(NO_GIT)))
$(if $(FOUND),,$(error $(NO_PYTHON)))
@set -euo pipefail; \
trap 'exit 130' INT TERM; \
venv='$(1)' log='$(1)/pip.log' pins='$(firstword $(2))' how=--quiet; \
if [ -e "$$venv/.installing" ] || ! "$$venv/bin/python" -m pip --version >/dev/null 2>&1 \
    || ! grep -qsF '$(CURDIR)/$(1)' "$$venv/pyvenv.cfg"; then \
    echo "Making $$venv with $(FOUND); the packages take some minutes and about 2 GB."; \
    "$(FOUND)" -m venv --clear "$$venv"; \
    how=--no-input; \
fi; \
rm -f "$$venv/.stamp" "$$log"; \
touch "$$venv/.installing"; \
pip() { "$$venv/bin/python" -m pip install $$how --disable-pip-version-check "$$@" 2>>"$$log"; }; \
if { [ -z '$(TORCH_INDEX)' ] \
        || pip --no-deps --index-url '$(TORCH_INDEX)' "$$(grep '^torch==' "$$pins")"; } \
    && pip $(4) -r "$$pins" \
    && $(3); \
then \
    echo $(KEY) > "$$venv/.stamp"; \
    rm -f "$$venv/.installing"; \
else \
    rm -f "$$venv/.installing"; \
    if grep -qE '$(NETWORK_ERRORS)' "$$log"; then echo 'make: $(NO_NETWORK)' >&2; \
    else tail -n 20 "$$log" >&2; echo "make: the packages could not be installed; see $$log" >&2; fi; \
    exit 1; \
fi
endef

NETWORK_ERRORS := NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|ReadTimeout|after connection broken
CUDA_BUILD := this torch is a CUDA build; name an index with CPU builds by TORCH_INDEX=URL
PINS := import json, sys; \
    found = [item["metadata"] for item in json.load(open(sys.argv[1]))["install"]]; \
    pins = {m["name"]: m["version"].split("+")[0] for m in found if m["name"] != "rstar2"}; \
    any(name.startswith("nvidia-") for name in pins) and sys.exit("make: $(CUDA_BUILD)"); \
    print(*(f"{name}=={pins[name]}" for name in sorted(pins, key=str.lower)), sep="\n")

# --- the browser ---------------------------------------------------------------------------

FIND_CHROMIUM := import os; from rstar2.cli.doctor import chromium_command, find_chromium; \
    print("" if os.environ.get("CHROMIUM") or find_chromium() else chromium_command())

chromium: setup
	@set -euo pipefail; \
	command="$$($(BIN)/python -c '$(FIND_CHROMIUM)')"; \
	if [ -z "$$command" ]; then exit 0; fi; \
	if command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null; } \
	    && eval "$$command"; then exit 0; fi; \
	echo "make: the browser tests need Chromium; type: $$command" >&2; \
	exit 1
