# What can be done with this tree? `make help` says; everything that is made lies in .venv, otel_gpu/bpf/ and dist/.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

V ?= 0
Q := $(if $(filter 1,$(V)),,@)

# Probes are placed by root only.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

# The first that is there; 14 is what the objects are tested with.
first = $(firstword $(foreach c,$(1),$(shell command -v $(c))))
CLANG ?= $(call first,clang-14 clang)
LLVM_STRIP ?= $(call first,llvm-strip-14 llvm-strip)

# A test of the agent waits for most of its time; what files share is made once.
TEST_WORKERS ?= 2
# A failed end-to-end test runs once more, alone, after all others; the summary lists it as unstable when it then passes.
PYTEST := $(BIN)/python -m pytest -p tests.second_runs -n $(TEST_WORKERS) --dist loadfile --durations=30

OBJECTS := otel_gpu/bpf/objects
LIBBPF := otel_gpu/bpf/lib/libotelgpu_bpf.so
CONTEXT := otel_gpu/context/lib/libotelgpu_context.so
SOURCES := $(wildcard ebpf/*.bpf.c)
PARTS := $(wildcard ebpf/*/*.[ch])
BPF_NAMES := $(SOURCES:ebpf/%.bpf.c=%) cuda_before_5_17 nccl_before_5_17
BPF_OBJECTS := $(foreach arch,x86_64 aarch64,$(BPF_NAMES:%=$(OBJECTS)/%.$(arch).bpf.o))
BPF_OBJECTS_HERE := $(filter %.$(shell uname -m).bpf.o,$(BPF_OBJECTS))
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Iebpf
C_FORMATTED := $(SOURCES) $(PARTS)
PYTHON_CODE := otel_gpu tests bench examples scripts setup.py
# Side by side, and beside what pip installs; four at a time, for a compiler takes half a gigabyte.
SIDE_BY_SIDE = $(MAKE) --no-print-directory -j$(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: system ## make .venv with the command otel-gpu in it; again and again does no harm
	$(Q)$(SIDE_BY_SIDE) $(VENV)/.complete $(BPF_OBJECTS_HERE) $(LIBBPF) $(CONTEXT)
	$(Q)$(BIN)/python -m compileall -q otel_gpu
	@echo "ready: $(BIN)/otel-gpu"

.PHONY: system
system:
	$(Q)PYTHON=$(PYTHON) scripts/install_system_packages.sh

$(VENV)/.complete: pyproject.toml setup.py | system
	$(Q)test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(Q)PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	$(Q)touch $@

.PHONY: bpf
bpf: system ## compile ebpf/*.bpf.c for every machine; `setup` does so for this one
	$(Q)$(SIDE_BY_SIDE) $(BPF_OBJECTS)

$(OBJECTS)/%.x86_64.bpf.o: ebpf/%.bpf.c $(PARTS) Makefile
	$(call compile,x86)
$(OBJECTS)/%.aarch64.bpf.o: ebpf/%.bpf.c $(PARTS) Makefile
	$(call compile,arm64)

$(OBJECTS)/%_before_5_17.x86_64.bpf.o: ebpf/%.bpf.c $(PARTS) Makefile
	$(call compile,x86 -DBEFORE_5_17)
$(OBJECTS)/%_before_5_17.aarch64.bpf.o: ebpf/%.bpf.c $(PARTS) Makefile
	$(call compile,arm64 -DBEFORE_5_17)

# The strip takes DWARF and leaves BTF, which the loader needs.
define compile
	@mkdir -p $(@D)
	@$(if $(Q),echo "  BPF      $(@F)")
	$(Q)$(CLANG) $(BPF_CFLAGS) -D__TARGET_ARCH_$(1) -c $< -o $@.unstripped
	$(Q)$(LLVM_STRIP) -g $@.unstripped -o $@ && rm $@.unstripped
endef

# By these names setup.py asks for them.
.PHONY: libbpf context
libbpf: $(LIBBPF)
context: $(CONTEXT)

$(LIBBPF): scripts/bundle_libbpf.sh
	@$(if $(Q),echo "  LIB      $(@F)")
	$(Q)scripts/bundle_libbpf.sh $(@D)

$(CONTEXT): otel_gpu/context/published.c Makefile
	@mkdir -p $(@D)
	@$(if $(Q),echo "  LIB      $(@F)")
	$(Q)$(or $(CC),cc) -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared \
		$(if $(filter x86_64,$(shell uname -m)),-mtls-dialect=gnu2) -o $@ $<

.PHONY: generate
generate: $(VENV)/.complete ## write otel_gpu/bpf/abi/ from the headers of ebpf/abi/; `make check` fails where they differ
	$(Q)$(BIN)/python scripts/generate_abi.py

.PHONY: demo
demo: setup ## a server, training, the agent, and what it sees, in a browser too; without a GPU on the mock driver
	$(Q)$(MAKE) -s -C tests/standins/cuda
	$(Q)$(AS_ROOT) $(BIN)/otel-gpu demo

.PHONY: ground
ground: setup
	$(Q)tests/ground/all.sh

.PHONY: torch-ground
torch-ground: setup
	$(Q)tests/ground/all.sh torch

.PHONY: test
test: ground bpf ## run the tests, on four of the CPythons; those of the kernel and end to end need root
	$(Q)$(PYTEST) -m 'not torch and not zoo and not machine and not every_python and not alone' tests

.PHONY: test-torch
test-torch: torch-ground ## run the tests on PyTorch, which is fetched once (several GB)
	$(Q)$(PYTEST) -m torch tests

.PHONY: test-kernels
test-kernels: ground bpf ## load, count, walk, and try rights on Debian's kernels, 5.10 to 7.2, in QEMU without hardware help (needs qemu-system-x86, busybox, cpio)
	$(Q)tests/kernels/all.sh

.PHONY: test-rdma
test-rdma: setup ## see real RDMA between two soft-RoCE devices in QEMU without hardware help (needs what test-kernels needs, iproute2, kmod)
	$(Q)tests/ground/kernels.sh --modules bookworm | while read -r release image; do tests/soft_roce/boot.sh "$$image"; done

.PHONY: test-image
test-image: setup ## carry out the Dockerfile without an engine, below a temporary directory (needs root, debootstrap; some minutes)
	$(Q)directory=$$(mktemp -d) && $(BIN)/python tests/image/build.py $$directory/image; status=$$?; rm -rf --one-file-system $$directory; exit $$status

.PHONY: test-quick-start
test-quick-start: wheel ## type the README's quick start on a fresh Debian 12 and Ubuntu 24.04, below a temporary directory (needs root, debootstrap; some minutes)
	$(Q)directory=$$(mktemp -d) && $(BIN)/python -m tests.image.quick_start $$directory; status=$$?; rm -rf --one-file-system $$directory; exit $$status

.PHONY: test-deb
test-deb: wheel ## build, install, remove and purge the Debian package on a fresh Debian 12 and Ubuntu 24.04 (needs root, debootstrap; some minutes)
	$(Q)directory=$$(mktemp -d) && $(BIN)/python -m tests.image.package $$directory; status=$$?; rm -rf --one-file-system $$directory; exit $$status

FUZZ_MINUTES ?= 60

.PHONY: fuzz
fuzz: setup ## look for inputs that break parsers of what strangers say, for FUZZ_MINUTES (60)
	$(Q)$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[fuzz]'
	$(Q)nice $(BIN)/python -m tests.fuzz.campaign --minutes $(FUZZ_MINUTES)

.PHONY: test-all
test-all: torch-ground bpf ## run `test` on every CPython, `test-torch`, the zoo of real programs (7 GB once), and what boots virtual machines, in one go
	$(Q)$(PYTEST) -m 'not alone' tests
	$(Q)$(BIN)/python -m pytest -m alone tests/unit

.PHONY: check
check: setup bpf ## lint, types, unit tests; without root
	$(Q)$(BIN)/ruff check $(wildcard $(PYTHON_CODE))
	$(Q)$(BIN)/ruff format --check $(wildcard $(PYTHON_CODE))
	$(Q)$(BIN)/mypy
	$(Q)$(if $(C_FORMATTED),$(BIN)/clang-format --dry-run --Werror $(C_FORMATTED))
	$(Q)$(PYTEST) -q -m 'not alone' tests/unit

.PHONY: format
format: setup ## put code into the house's shape
	$(Q)$(BIN)/ruff check -q --fix-only $(wildcard $(PYTHON_CODE))
	$(Q)$(BIN)/ruff format -q $(wildcard $(PYTHON_CODE))
	$(Q)$(if $(C_FORMATTED),$(BIN)/clang-format -i $(C_FORMATTED))

.PHONY: docs
docs: $(VENV)/.complete ## write from what is declared: references of telemetry, variables and configuration, dashboards, completions, the man page
	$(Q)$(BIN)/python -c "import sys; from otel_gpu.service.telemetry import render; sys.stdout.write(render())" > docs/telemetry.md.new && mv docs/telemetry.md.new docs/telemetry.md
	$(Q)$(BIN)/python -c "import sys; from otel_gpu.config.otel_variables import render; sys.stdout.write(render())" > docs/variables.md.new && mv docs/variables.md.new docs/variables.md
	$(Q)$(BIN)/python -c "import sys; from otel_gpu.config.reference import render; sys.stdout.write(render())" > docs/reference.new && mv docs/reference.new docs/configuration-reference.md
	$(Q)COLUMNS=100 $(BIN)/python scripts/command_files.py
	$(Q)if $(BIN)/python -c 'import grafana_foundation_sdk' 2>/dev/null; then $(BIN)/python -m scripts.dashboards >/dev/null; \
	else echo "deploy/grafana/ is left as it is: grafana-foundation-sdk, which writes it, needs Python 3.11" >&2; fi

.PHONY: site
site: $(VENV)/.complete ## write the documentation as a site into build/site
	$(Q)$(BIN)/python -m mkdocs build --quiet --strict

.PHONY: bench
bench: ground ## measure, and print the table that the README quotes
	$(Q)$(BIN)/python -m bench

.PHONY: wheel
wheel: setup bpf ## build dist/*.whl and the source distribution
	$(Q)rm -rf dist build
	$(Q)mkdir dist && OTEL_GPU_RELEASE=1 $(BIN)/python -m build -o dist >dist/build.log 2>&1 || { cat dist/build.log; exit 1; }
	$(Q)rm dist/build.log
	$(Q)$(BIN)/python scripts/check_wheel.py dist/*.whl dist/*.tar.gz

.PHONY: deb
deb: wheel ## build dist/*.deb for the release of Debian or Ubuntu that this is
	$(Q)scripts/build_deb.sh

.PHONY: clean
clean: ## remove what was built here; downloads in the cache stay
	$(Q)rm -rf $(VENV) build dist *.egg-info $(OBJECTS) $(dir $(LIBBPF)) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	$(Q)find otel_gpu tests bench -name __pycache__ -prune -exec rm -rf {} +
