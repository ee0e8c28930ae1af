# `make demo` runs the main job, `make test` the tests, `make check` adds lint and types to these;
# `make test-all` runs every case of every test, which takes more than half an hour on two cores.
# Each does all the set-up: it needs Python 3.11 or later, a Rust toolchain (cargo), a C compiler (cc), and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# An environment of locked packages. What is imported of them is compiled then, and kept.
INSTALL := -m pip install --quiet --no-compile --require-hashes --requirement
unexport PYTHONDONTWRITEBYTECODE
READY := $(VENV)/.ready
# Inputs of a target that `make fuzz` reaches in all runs together.
RUST_INPUTS ?= 100000000
PYTHON_INPUTS ?= 1000000
# The compiled core names no folder of the machine that it was built on.
REMAP := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo --remap-path-prefix=$(CURDIR)=.
LAB := lab/pyproject.toml verify/pyproject.toml
CORE := Cargo.toml Cargo.lock pyproject.toml core/README.md core/src/pedersen/digests.bin \
  $(foreach crate,core bindings,$(crate)/Cargo.toml $(wildcard $(crate)/src/*.rs $(crate)/src/*/*.rs))

# Lint checks the core for a processor of another kind, too. blake3's code in C is left out: it needs a cross compiler.
OTHER := aarch64-unknown-linux-gnu
CLIPPY_OTHER := CARGO_FEATURE_NO_NEON=1 cargo clippy --locked --package smpc-core --all-targets --quiet --target $(OTHER) -- -D warnings

CAPABILITIES := $(notdir $(patsubst %/capability.py,%,$(wildcard smpc_dp/capabilities/*/capability.py)))

.PHONY: demo wheel release notebooks site test test-guides test-torch test-flower test-services test-all test-without fuzz timing mutants check lint types setup lock clean tools

demo: $(READY)
	$(BIN)/smpc-dp demo

# The wheel that users install, checked: it holds the product alone, and `smpc-dp demo` runs from it without a compiler.
wheel: $(READY)
	rm -f dist/smpc_dp-*.whl
	RUSTFLAGS="$(REMAP) $(RUSTFLAGS)" \
	  $(BIN)/maturin build --quiet --release --locked --interpreter $(BIN)/python --out dist
	$(BIN)/python -m release.wheel dist/smpc_dp-*.whl

# What a release consists of, built and checked in dist/release; nothing is published. Tools in an environment of their own.
# RELEASE=--quick: as CI does at each commit (release/__main__.py says what it leaves out).
release: .venv-release/.installed
	PATH=$(CURDIR)/.venv-release/bin:$$PATH RUSTFLAGS="$(REMAP) $(RUSTFLAGS)" .venv-release/bin/python -m release $(RELEASE)

.venv-release/.installed: requirements/release.lock | tools
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python $(INSTALL) requirements/release.lock
	@touch $@

# The notebooks, executed, with what they show, in build/notebooks: for the site.
notebooks: $(READY) .venv-site/.installed
	rm -rf build/notebooks
	PYTHONPATH=$(CURDIR) .venv-site/bin/python -m docs.site.notebooks

# The documents as a site in build/site/html, and its tests. It loads nothing from elsewhere and opens from a disk.
site: notebooks
	rm -rf build/site
	PYTHONPATH=$(CURDIR) .venv-site/bin/python -m sphinx --fail-on-warning --keep-going --quiet \
	  --conf-dir docs/site --doctree-dir build/site/doctrees . build/site/html
	SMPC_DP_SITE=build/site/html SMPC_DP_NOTEBOOKS=$(CURDIR)/.venv-site/bin/python $(BIN)/python -m pytest tests/site

.venv-site/.installed: requirements/site.lock | tools
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python $(INSTALL) requirements/site.lock
	@touch $@

# TESTED: which tests, as options of pytest (tests/conftest.py). Each worker would rewrite the assertions of all tests to
# show values where one fails; instead those that failed run again with them.
test: $(READY)
	cargo test --locked --quiet --package smpc-core
	$(BIN)/python -m pytest -n auto --dist worksteal --assert=plain $(TESTED) || \
	  { $(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 20 $(TESTED); exit 1; }

# The examples of guides and README, the verifiable demonstration, and the package without each capability, whole.
test-guides: $(READY)
	$(BIN)/python -m pytest --all tests/processes/test_guides.py tests/processes/test_readme.py \
	  tests/processes/test_demo_verifiable.py tests/processes/test_absent_folders.py

# PyTorch and pandas, in an environment of their own: 6 GB, with CUDA. The compiled core is that of the checkout.
test-torch: $(READY) .venv-torch/.installed
	PYTHONPATH=$(CURDIR) .venv-torch/bin/python -m pytest tests/torch

.venv-torch/.installed: requirements/torch.lock | tools
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python $(INSTALL) requirements/torch.lock
	@touch $@

# Flower, in an environment of its own, with Ray for its simulation and for ours.
test-flower: $(READY) .venv-flower/.installed
	PYTHONPATH=$(CURDIR):$(CURDIR)/lab RAY_USAGE_STATS_ENABLED=0 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 \
	  .venv-flower/bin/python -m pytest tests/flower

.venv-flower/.installed: requirements/flower.lock | tools
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python $(INSTALL) requirements/flower.lock
	@touch $@

# Sessions through a proxy and a web server, between network namespaces: as root, on Linux, with nginx and faketime.
test-services: $(READY) .venv-services/.installed
	SMPC_DP_SERVICES=$(CURDIR)/.venv-services/bin $(BIN)/python -m pytest tests/services

.venv-services/.installed: requirements/services.lock | tools
	$(PYTHON) -m venv .venv-services
	.venv-services/bin/python $(INSTALL) requirements/services.lock
	@touch $@

test-all: TESTED := --all
test-all: test test-without

# The tests of everything else, without the folder of each capability.
test-without: $(READY)
	for name in $(CAPABILITIES); do \
	  $(BIN)/python -m pytest -n auto --dist worksteal -p tests.without --without $$name || exit 1; \
	done

# Hours of hostile inputs to every decoder; a run that was stopped goes on where the counts in .fuzz say.
fuzz: $(READY)
	@mkdir -p .fuzz
	FUZZ_STATE=$(CURDIR)/.fuzz FUZZ_INPUTS=$(RUST_INPUTS) \
	  cargo test --locked --release --package smpc-core --lib fuzz:: -- --test-threads=1
	$(BIN)/python -m tests.fuzz --state .fuzz --inputs $(PYTHON_INPUTS)

# Whether the time of the core's kernels depends on secrets: memcheck with secrets undefined, then Welch's t.
timing:
	CARGO_PROFILE_RELEASE_DEBUG=1 cargo build --locked --release --package smpc-dp-timing
	@if command -v valgrind >/dev/null; then valgrind -q --suppressions=timing/valgrind.supp target/release/smpc-dp-timing; \
	  else echo "missing: valgrind (Debian: apt install valgrind). Branches and addresses are not checked"; fi
	target/release/smpc-dp-timing

# Applies each mutation of tests/mutants/mutants.toml to a copy, and fails unless tests of the concerned part catch it.
mutants: $(READY)
	$(BIN)/python -m tests.mutants

check: lint types test

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	@if rustc --print target-libdir --target $(OTHER) | xargs test -d; then $(CLIPPY_OTHER); \
	  else echo "missing: the library of Rust for $(OTHER) (rustup target add $(OTHER)). Code for other processors is not checked"; fi

types: $(READY)
	$(BIN)/mypy

setup: $(READY)

tools:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "missing: $(PYTHON). Install Python 3.11 or later, or run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "too old: $$($(PYTHON) --version 2>&1). Python 3.11 or later is needed, or run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "missing: the venv module of $(PYTHON) (Debian: apt install python3-venv)"; exit 1; }
	@cargo --version >/dev/null 2>&1 || { echo "missing: a cargo that runs. Install a Rust toolchain: https://rustup.rs"; exit 1; }
	@rustc --version >/dev/null 2>&1 || { echo "missing: a rustc that runs. Install a Rust toolchain: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null 2>&1 || { echo "missing: cc. The core needs a C compiler (Debian: apt install gcc)"; exit 1; }

$(VENV)/.installed: requirements/dev.lock | tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) requirements/dev.lock
	@touch $@

$(READY): $(VENV)/.installed $(CORE) $(LAB)
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) RUSTFLAGS="$(REMAP) $(RUSTFLAGS)" $(BIN)/maturin develop --quiet --release --locked
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable lab --editable verify
	@touch $@

lock: $(READY)
	$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-find-links --no-emit-index-url \
	  --strip-extras --upgrade --output-file=requirements/dev.lock pyproject.toml requirements/dev.in
	$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-find-links --no-emit-index-url \
	  --strip-extras --upgrade --output-file=requirements/torch.lock pyproject.toml requirements/torch.in
	$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-find-links --no-emit-index-url \
	  --strip-extras --upgrade --output-file=requirements/flower.lock pyproject.toml requirements/flower.in
	$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-find-links --no-emit-index-url \
	  --strip-extras --upgrade --output-file=requirements/services.lock requirements/services.in
	$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-find-links --no-emit-index-url \
	  --strip-extras --upgrade --output-file=requirements/release.lock requirements/release.in
	$(BIN)/pip-compile --quiet --allow-unsafe --generate-hashes --no-emit-find-links --no-emit-index-url \
	  --strip-extras --upgrade --output-file=requirements/site.lock pyproject.toml requirements/site.in
	cargo update

clean:
	rm -rf $(VENV) target dist smpc_dp/*.so
