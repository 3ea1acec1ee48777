# Everything a checkout needs: `make demo` and `make test` set it up themselves.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
UV_VENV := .uv
SITE_VENV := .site-venv
SITE_STAMP := $(SITE_VENV)/.installed

DEMO := demo
# RUNTIME=ray runs the demo on Ray's worker processes.
RUNTIME := in_process
REPRODUCTION := runs/reproduction
# DATA_DIR=DIR is the folder of mnist.npz and cifar10.npz; without it, the smallest
# row is one of the digits that the package's dependencies ship.
ifdef DATA_DIR
DATA_FLAG := --data_dir=$(DATA_DIR)
SMALLEST := --rows=table3_mlp_mnist_noniid --scales=paper
SMALLEST_RUN := mnist-label_skew_125-mlp-paper
else
SMALLEST := --rows=mlp_embedded_digits --scales=demo
SMALLEST_RUN := embedded_digits-label_skew_8-mlp-demo
endif
TRAIN := $(PYTHON) -m tasks.train
TESTS := tests
# Where last bits are moved too.
MOVED := privacy theory analysis aggregators
OLDER_CPU := ONEDNN_MAX_CPU_ISA=AVX2 TF_ENABLE_ONEDNN_OPTS=0 OPENBLAS_CORETYPE=Haswell \
  NPY_DISABLE_CPU_FEATURES="AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
REFERENCE := build/reference
NOTEBOOKS := build/notebooks

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 27

.PHONY: setup
setup: $(STAMP) ## Install the locked versions into .venv

$(STAMP): requirements.lock pyproject.toml
	@python=$$(bash scripts/find_python.sh); \
	echo "Installing into $(VENV) with $$python: about 3 GB, some minutes."; \
	rm -rf $(VENV); "$$python" -m venv $(VENV)
	@$(VENV)/bin/pip install --disable-pip-version-check \
	  --no-deps --require-hashes -r requirements.lock | awk ' \
	  /^Collecting/ && ++n % 20 == 0 { print "  " n " packages downloaded"; fflush() } \
	  /^Installing/ { print "  " n " packages downloaded; unpacking them ..."; fflush() }'
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	@echo "Installed. Use $(PYTHON), or first: source $(VENV)/bin/activate"
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Train FedAvg, CE-FedAvg, DP-FedAvg and a run whose guarantee holds (2 minutes)
	@$(TRAIN) --flagfile=tasks/flagfiles/demo/fed_avg.flags --output_dir=$(DEMO)/fed_avg \
	  --runtime=$(RUNTIME)
	@$(TRAIN) --flagfile=tasks/flagfiles/demo/ce_fed_avg.flags --output_dir=$(DEMO)/ce_fed_avg \
	  --clipping_norm_from=$(DEMO)/fed_avg --runtime=$(RUNTIME)
	@$(TRAIN) --flagfile=tasks/flagfiles/demo/dp_fed_avg.flags --output_dir=$(DEMO)/dp_fed_avg \
	  --clipping_norm_from=$(DEMO)/fed_avg --runtime=$(RUNTIME)
	@$(TRAIN) --flagfile=tasks/flagfiles/demo/private.flags --output_dir=$(DEMO)/private \
	  --runtime=$(RUNTIME)
	@$(PYTHON) -m analysis.report $(DEMO)/fed_avg $(DEMO)/ce_fed_avg $(DEMO)/dp_fed_avg \
	  $(DEMO)/private --output=$(DEMO)/report

.PHONY: reproduce-smallest
reproduce-smallest: $(STAMP) ## Repeat one row of docs/reproduction.md and compare (2 minutes)
	@$(PYTHON) -m tasks.reproduce $(SMALLEST) $(DATA_FLAG) --output_dir=$(REPRODUCTION)
	@$(PYTHON) -m analysis.compare_to_published \
	  $(foreach run,fed_avg ce_fed_avg dp_fed_avg,$(REPRODUCTION)/$(SMALLEST_RUN)-$(run)-seed0)

.PHONY: reproduce
reproduce: $(STAMP) ## Run all of docs/reproduction.md into runs/reproduction (DATA_DIR=...; hours)
	@$(PYTHON) -m tasks.reproduce $(DATA_FLAG) --output_dir=$(REPRODUCTION)

.PHONY: test
test: $(STAMP) ## Run the tests, but for the slow ones
	@$(PYTHON) -m pytest -q -n 2 --dist worksteal -m 'not slow' $(TESTS)

.PHONY: test-slow
test-slow: $(STAMP) ## Run the slow tests
	@$(PYTHON) -m pytest -q -n 2 --dist loadgroup -m slow $(TESTS)

.PHONY: test-other-cpu
test-other-cpu: $(STAMP) ## Run tests as on a processor without AVX-512, whose last bits are others
	@$(OLDER_CPU) $(PYTHON) -m pytest -q -n 2 -m 'not slow' \
	  -p tests.last_bits --last-bits-seed=1 $(addprefix $(TESTS)/,$(MOVED))
	@$(OLDER_CPU) $(PYTHON) -m pytest -q -n 2 -m slow \
	  -p tests.last_bits --last-bits-seed=1 $(TESTS)/privacy $(TESTS)/theory
	@$(OLDER_CPU) $(PYTHON) -m pytest -q -n 2 -m 'not slow' $(TESTS)/learning $(TESTS)/runtime

.PHONY: test-wheel
test-wheel: ## Run the tests without TensorFlow on the newest Python and NumPy
	@bash scripts/test_wheel.sh

.PHONY: lint
lint: $(STAMP) ## Check style, format and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

# Its pins and those of TensorFlow Federated do not go together.
$(SITE_STAMP): website/requirements.lock
	@python=$$(bash scripts/find_python.sh); rm -rf $(SITE_VENV); "$$python" -m venv $(SITE_VENV)
	@$(SITE_VENV)/bin/pip install --quiet --disable-pip-version-check \
	  --no-deps --require-hashes -r website/requirements.lock
	@touch $@

.PHONY: docs
docs: $(STAMP) $(SITE_STAMP) ## Build the site with the API reference into build/site (3 minutes)
	@rm -rf $(REFERENCE) $(NOTEBOOKS)
	@$(PYTHON) -m scripts.write_reference $(REFERENCE)
	@mkdir -p $(NOTEBOOKS)
	@# The output is relative to the notebook; what a loop prints is one output.
	@$(VENV)/bin/jupyter-execute --timeout=600 --NotebookClient.coalesce_streams=True \
	  --output='../$(NOTEBOOKS)/{notebook_name}' notebooks/*.ipynb
	@# Not --quiet: that would hide warnings from --strict.
	@NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --strict -f website/mkdocs.yml
	@echo "Look at it with: python3 -m http.server --directory build/site"

.PHONY: lock
lock: ## Resolve the dependencies anew into requirements.lock and website/requirements.lock
	@python=$$(bash scripts/find_python.sh); \
	test -x $(UV_VENV)/bin/uv || { "$$python" -m venv $(UV_VENV); $(UV_VENV)/bin/pip install --quiet uv; }
	@$(UV_VENV)/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.10 \
	  --extra tff --extra cluster --extra plot --extra docs --extra notebooks --extra dev \
	  --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock' --output-file requirements.lock
	@$(UV_VENV)/bin/uv pip compile website/requirements.in --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock' --output-file website/requirements.lock

.PHONY: clean
clean: ## Remove everything that make made
	@rm -rf $(VENV) $(UV_VENV) $(SITE_VENV) .peers $(DEMO) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: check-build
check-build: $(STAMP) ## Load the BUILD files with Bazel (Debian's bazel-bootstrap)
	@$(PYTHON) -m scripts.check_build

.PHONY: bench
bench: $(STAMP) ## Time a round against the bare arithmetic and stock TFF
	@$(PYTHON) -m benchmarks.compare

# The frameworks that `make bench-peers` compares, each in a venv of its own.
PEERS := torch pfl flower fedjax
comma := ,

.peers/%/.installed: benchmarks/peers/%.txt | $(STAMP)
	@rm -rf .peers/$*; $(PYTHON) -m venv .peers/$*
	@.peers/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: bench-peers
bench-peers: $(PEERS:%=.peers/%/.installed) ## Time FedJAX, pfl, Flower and plain PyTorch on the same work
	@$(PYTHON) -m benchmarks.peers.compare --peers=$(subst $() $(),$(comma),$(PEERS))
