# Everything a newcomer runs. `make demo` and `make test` set themselves up on a fresh Debian
# machine as root, with Python, make and git there.
.PHONY: aws-smoke gpu-check demo soak engine images test test-all check lint install lab-clean setup test-tools docs docs-site golden mutate uninstall

SHELL := /bin/bash
VENV := .venv
RUN := $(VENV)/bin

setup:
	@scripts/setup

# Also what only tests and lint need: shellcheck, gcc; an sshd, a browser and a PyPy that are not installed.
test-tools:
	@scripts/setup tests

# UV_PYTHON is yours, if you want another Python.
install: setup
	@$$(scripts/uv) sync --quiet --frozen --all-extras --python $${UV_PYTHON:-$$(scripts/python)}

demo: install engine
	@scripts/demo

# Cold demos in a row beside a load, each of which must end well: `make soak DEMOS=40`.
# `make soak POINTS=200`: commands killed at random moments instead, each of which may leave nothing.
# `make soak STORMS=3`: runs on machines that random failures hit (root), 5 to 15 minutes each.
DEMOS := 20
SOAK = $(if $(POINTS),tests.leaks --points $(POINTS),tests.soak --demos $(DEMOS))
soak: install engine
	@$(RUN)/python -m $(if $(STORMS),tests.storm --machines --storms $(STORMS),$(SOAK))

# A REAL account, step by step; asks before each, with its price (docs/start/first-day.md).
aws-smoke: install
	@scripts/aws-smoke

# gpuctl on this machine's NVIDIA GPU, without AWS; scripts/gpu-check ends with 77 where there is none.
gpu-check: install
	@scripts/gpu-check

# What the lab's machines boot; minutes the first time.
images: install
	@scripts/images

# Pulumi's engine: downloaded, or built where downloads are closed; minutes the first time.
engine: install
	@scripts/engine

# The tests have three tiers, each in the next one (tests/README.md), on several workers, each with
# labs of its own. First: lint, and what needs neither root, Pulumi's engine nor machines.
check: test-tools install
	@scripts/test -m 'not lab and not engine and not slow and not thorough'

# Also commands and runs as processes, plans with Pulumi's engine, and the lab end to end.
test: test-tools install images engine
	@scripts/test -m 'not thorough'

# Also many like cases: kills, storms, permissions, plans of all types.
test-all: test-tools install images engine
	@scripts/test

# A fresh clone uses mypy's results of an earlier one: mypy compares the files' hashes.
lint: test-tools install
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy --cache-dir $${XDG_CACHE_HOME:-$$HOME/.cache}/gpuctl/mypy
	@$(RUN)/lint-imports --no-cache
	@scripts/lint-shell
	@$(RUN)/python scripts/lint-prose

# Generated pages: the references of CLI, Python API and files, the tables of diagnostics, modes, presets.
docs: install
	@$(RUN)/python -m config.file_reference
	@$(RUN)/python -m cli.command_reference
	@$(RUN)/python -m gpuctl.reference
	@$(RUN)/python -m engine.plan.mode_reference
	@$(RUN)/python -m provision.health.reference

# The site of docs/ in build/site; broken links fail. The search needs a server: `python3 -m http.server -d build/site`.
docs-site: install
	@NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --strict --quiet

# Golden files as the code makes them now; prints what changed, for a review (tests/README.md).
golden: install
	@$(RUN)/python -m tests.golden

# Mutation testing of the pure modules, hours for all of them: what would the tests not notice?
# MUTANTS='engine.plan.order.*' tries those of one module; `.venv/bin/mutmut browse` shows the results.
mutate: install
	@$(RUN)/mutmut run $(MUTANTS)

# Stops every lab of this machine and clears what killed ones left: machines, mounts, bridges, rules.
lab-clean: install
	@$(RUN)/gpuctl lab stop --all

# Lists what gpuctl added to this machine, asks, and removes it; YES=1 does not ask.
uninstall:
	@scripts/uninstall $(if $(YES),--yes)
