# Short commands for the common tasks. CMake does the build itself: see CMakePresets.json.
#   make run                  a service's memory under the system's malloc, under Cairn and others;
#                             PORT=N if another program uses its port
#   make run CMD="…"          your own command instead; ROUNDS=N, RUN_FLAGS="--on jemalloc"
#   make bench                every allocator found against every row; BENCH_FLAGS="--quick"
#   make test                 unit, model, misuse and behaviour tests: minutes
#   make test-all             builds and runs every test: most of an hour
#   make prove                checks the models of the concurrent protocols: docs/dev/PROOFS.md
#   make fuzz FUZZ_SECONDS=N  every fuzzer for N seconds in each of two builds; FUZZ="heap ring"
#   make docs                 the documents as a book, in build/book
#   make build                builds the release preset into build/release
#   make deps                 installs the Debian packages that make build and make install need;
#                             FOR="bench docs" those of other groups of dev/packages
#   make deb                  Debian's packages, in build/packages
#   make wheel                the Python package of the tools, wheel and sources, in build/packages
#   make crates               builds the Rust crates, in build/packages, and tests them (cargo)
#   make prove-packages       installs these in bare roots of Debian 12 and 13 (root, network)
#   make install PREFIX=DIR   installs headers, libraries and tools
#   make clean                removes build/
# make build and make install never install packages: they report the missing ones. make clean and
# make crates need none. All other targets install the missing ones by apt-get, as root or with
# sudo, and print their names first (make bench does not name its peers). DEPS=0 turns that off.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
BUILD := build/release
ROUNDS ?= 5
# The service of `make run`, and its curves. With three to six allocators it takes 25 to 50 seconds.
PORT ?= 8437
SERVICE := python3 tools/workloads/documents.py $(PORT)
SERVICE_FLAGS := --load "python3 tools/workloads/documents_load.py $(PORT)" --ready $(PORT) \
    --idle 3s --on installed --html build/run.html
FUZZ_SECONDS ?= 60
FOR ?= build tools
TEST_NEEDS := tests-unit tests-model tests-misuse tests-behaviour
TEST_CASES := -L '^(unit|model|misuse|behaviour)' -LE '^python$$'
RUN_NEEDS := cairn-measure cairn-probe cairn-malloc cairn-malloc-hardened

# The package manager allows one process at a time, and each build uses all processors already.
.NOTPARALLEL:
.PHONY: build compile configure deps run bench test test-all prove fuzz docs deb wheel crates \
    prove-packages install clean

build: missing+build compile

compile: configure
	cmake --build $(BUILD) -j $(JOBS)

configure:
	@cmake --preset release --log-level=NOTICE >/dev/null

# The groups of dev/packages, separated by plus signs. One line says which packages are installed.
packages+%:
	@dev/install-packages $(subst +, ,$*)

missing+%:
	@dev/install-packages --missing $(subst +, ,$*)

deps:
	@dev/install-packages $(FOR)

run: packages+build+run configure
	@cmake --build $(BUILD) -j $(JOBS) --target $(RUN_NEEDS)
	@tools/bin/cairn run $(if $(CMD),--rounds $(ROUNDS),$(SERVICE_FLAGS)) $(RUN_FLAGS) -- \
	    $(or $(CMD),$(SERVICE))

bench: packages+build+run
	@bench/cairn-bench --install $(BENCH_FLAGS)

test: packages+build+run configure
	@echo "Builds the unit, model, misuse and behaviour tests of the release build, and runs them:"
	@echo "about 2,100 cases, five minutes on two processors. \`make test-all\` runs everything."
	@cmake --build $(BUILD) -j $(JOBS) --target $(TEST_NEEDS)
	@dev/run-tests $(BUILD) -j $(JOBS) $(TEST_CASES)

test-all: packages+build+run+test compile
	@dev/run-tests $(BUILD) -j $(JOBS)

prove: packages+build+prove
	@dev/prove --jobs $(JOBS)

fuzz: packages+build+ci
	@dev/fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

docs: packages+docs
	@mkdocs build --strict --quiet
	@echo "build/book/index.html; with search: python3 -m http.server --directory build/book"

deb: packages+build+deb
	@dev/make-deb

wheel: packages+build
	@dev/make-wheel

prove-packages: packages+prove-packages
	@dev/prove-packages

crates:
	@dev/make-crates

install: missing+build+tools configure
	cmake --build $(BUILD) -j $(JOBS) --target installed
	cmake --install $(BUILD) --prefix $(PREFIX)
	@# So that the loader finds the libraries for programs that are linked with them.
	@if [ "$$(id -u)" = 0 ] && [ -z "$$DESTDIR" ] && command -v ldconfig >/dev/null; then ldconfig; fi
	@dev/after-install $(BUILD) $(PREFIX) $(DESTDIR)

clean:
	rm -rf build
