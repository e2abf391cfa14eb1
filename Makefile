PYTHON ?= python3
OTHER_PYTHON ?= python3.13
PIP_FLAGS ?=
BIN := .venv/bin
QUICK ?=
.PHONY: demo experiments night stale-results docs docs-check check test test-slow pytest installable lowest other-python wheel release-check faults \
	kernels gpu \
	simulated-gpu perturbed other-machine huggingface lint types format clean

# The first command: from a clone to pages with tables and plots, the first table in less than a minute after the
# installation. Ctrl-C keeps the finished part. All models and questions, in about 8 minutes: .venv/bin/seqmodels compare
demo: .venv/installed
	$(BIN)/seqmodels compare --overwrite $(or $(QUICK),--quick)

# Every textbook claim, and docs/experiments.md: under an hour on two cores; with QUICK=--quick five minutes, into a
# temporary folder.
experiments: .venv/installed
	PYTHONPATH=. $(BIN)/python experiments/claims --jobs 2 $(QUICK)

# Every experiment, more than a night of a core, DATA being the folder of the public data that some read; it says which it
# leaves out. With SINCE=2026-11-29 it goes on with what was not measured on that day or later.
night: .venv/installed
	$(BIN)/python tools/night.py $(if $(DATA),--data $(DATA)) $(if $(ONLY),--only $(ONLY)) $(if $(SINCE),--since $(SINCE))

# The results that are older than the code that they measure, those with most changed files first; half a minute.
stale-results: .venv/installed
	PYTHONPATH=. $(BIN)/python tools/stale_results.py

# The documentation into site/, readable from the folder or a server; a broken link is an error.
docs: .venv/installed
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable ".[docs]"
	PYTHONPATH=. $(BIN)/zensical build --clean --strict
	@echo "Open site/index.html"

# The pages as programs, with the budgets that they have: what they show is what they print. Some 15 minutes; the tests run
# all but the slow ones.
docs-check: .venv/installed
	PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python -m tests.pages

# A few minutes of the quick tier: the contract on one row of each model class, and the rules of the code.
check: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --one-row tests/test_contract.py tests/test_architecture.py \
		tests/test_words.py

# Linter, types and the quick tier of the tests: of each rule of the contract a row of each class of model, of each test
# that is parametrised several times a diagonal, and of what takes more than a second the smallest case. Each rule and
# each mechanism stands in it. The types are checked beside the tests, of which two workers take one half each and then
# what the other has left.
test: lint
	@$(MAKE) --no-print-directory --jobs 2 types pytest

# The rest: rows of the contract and combinations for which others stand in `make test`, optimisers and samplers that
# confirm a figure, installations, whole pages, several processes, and the tests of scripts.
test-slow: .venv/installed
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests

# Bytecode is kept whatever the environment says: the processes that tests start read it, and the next run.
pytest: .venv/installed
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# Whether what the README and the pages say to install can be installed on every system, from the index alone: reads
# metadata, downloads no package.
installable: .venv/installed
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "uv" || true
	$(BIN)/python tools/installations.py

# The tests of `make check` and those of the public data structures under the lowest versions that pyproject.toml allows.
lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet $(PIP_FLAGS) $$($(PYTHON) tools/lowest.py text audio translation) \
		"setuptools>=77" pytest pytest-xdist hypothesis scikit-learn hmmlearn safetensors
	.venv-lowest/bin/python -m pip install --quiet $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n 2 --one-row tests/test_contract.py tests/sequences/test_sequences.py \
		tests/sequences/test_items.py tests/common/test_storage.py tests/encodings tests/observations

# All tests under another Python.
other-python:
	$(OTHER_PYTHON) -m venv .venv-other
	.venv-other/bin/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable ".[test]"
	OMP_NUM_THREADS=1 .venv-other/bin/python -m pytest -n 2 --dist worksteal

# The wheel, built, installed into an empty environment, and used outside the clone.
wheel:
	rm -rf .venv-wheel dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip wheel --quiet $(PIP_FLAGS) --no-deps --wheel-dir dist .
	.venv-wheel/bin/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt dist/seqmodels-*.whl
	cd .venv-wheel && bin/seqmodels compare --overwrite --quick --steps 40

# What is tried before a release, in half an hour to two: every step, whether or not one before it failed, and a table of
# them. OTHER_PYTHON is another interpreter; the logs are in results/release.
release-check:
	$(PYTHON) tools/release_check.py OTHER_PYTHON="$(OTHER_PYTHON)" PYTHON="$(PYTHON)" PIP_FLAGS="$(PIP_FLAGS)"

# What takes longer than tests: every measurement of docs/reliability.md, two scripts at a time.
faults: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --jobs 2 --out docs/reliability.md

# The kernels for GPUs: interpreted where there is none, and compiled for several.
kernels: .venv/installed
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "triton"
	$(BIN)/python -m pytest tests/inference/chains/test_triton_kernels.py tests/hmm/emissions/test_triton_mixtures.py \
		tests/inference/chains/test_triton_compilation.py tests/neural/ops/test_triton_softmax.py

# The contract on one row of each model class, on a GPU simulated by a CPU, which says where tensors of two devices meet:
# some five minutes of a core.
simulated-gpu: .venv/installed
	PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p tests.simulated_gpu --one-row tests/test_contract.py

# All tests with every product of torch rounded otherwise, at random: what fails holds on one processor only. TESTS is
# what of them is run, here and below.
TESTS ?= tests
perturbed: .venv/installed
	PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -p tests.perturbed_products $(TESTS)

# All tests as on a machine with other instructions, two threads, another zone of times and, where it is installed, the
# German locale.
GERMAN := $(shell locale -a 2>/dev/null | grep -i -m 1 "^de_DE.utf")
other-machine: .venv/installed
	@$(if $(GERMAN),,echo "The locale de_DE.UTF-8 is not installed: the tests run in that of this shell.")
	$(if $(GERMAN),LC_ALL=$(GERMAN)) TZ=America/St_Johns OPENBLAS_CORETYPE=Haswell MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=2 \
		$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

# Every figure of a GPU, on a machine with torch for it: 40 minutes at most, into benchmarks/results/gpu. It needs no
# installation and no internet; TEXT is Shakespeare's characters, PAIRS the folder of multi30k. The next call goes on
# where this one ended; MINUTES=9 ends within so many, ONLY="em gpt2" measures these parts. PROFILE=1 shows what took
# longest; TINY=1 shows on a CPU that every part runs.
gpu:
	PYTHONPATH=. $(if $(TINY),$(BIN)/python,$(PYTHON)) benchmarks/gpu.py $(if $(TEXT),--text $(TEXT)) \
		$(if $(PAIRS),--pairs $(PAIRS)) $(if $(ONLY),--only $(ONLY)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(OUT),--out $(OUT)) $(if $(PROFILE),--profile) $(if $(TINY),--device cpu --tiny $(if $(OUT),,--out results/gpu))

# Conversions against the package `transformers`, which is too large to be installed for every test run.
huggingface: .venv/installed
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "transformers"
	$(BIN)/python -m pytest tests/neural/huggingface tests/wrappers/adapt/test_huggingface.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The environment, with pinned versions. A torch of this version that is in .venv already, such as the build for CPUs, stays.
.venv/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv with torch and the rest: some minutes the first time."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "torch" "setuptools"
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf .venv .venv-lowest .venv-other .venv-wheel results site .pytest_cache .mypy_cache .ruff_cache
