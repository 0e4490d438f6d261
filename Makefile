# The short way to the common tasks. The build itself is CMake's: see CMakePresets.json.
#   make run                  a real program under the system's malloc and under Cairn
#   make run CMD="…"          the same for a command of yours; ROUNDS=N, RUN_FLAGS="--on jemalloc"
#   make bench                every allocator found against every row; BENCH_FLAGS="--quick"
#   make test                 builds and runs every test
#   make prove                checks the models of the concurrent protocols: docs/PROOFS.md
#   make fuzz FUZZ_SECONDS=N  every fuzzer for N seconds in each of two builds; FUZZ="heap ring"
#   make docs                 the documents as a book, in build/book
#   make build                builds the release preset into build/release
#   make deb                  Debian's packages, in build/packages
#   make wheel                the Python package of the tools, wheel and sources, in build/packages
#   make crates               the Rust crates, in build/packages, and tries them out (cargo)
#   make prove-packages       installs these in bare roots of Debian 12 and 13 (root, network)
#   make install PREFIX=DIR   installs headers, libraries and tools
#   make clean                removes build/
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
BUILD := build/release
# Long enough to be measured, short enough to be watched: about a second a run.
CMD ?= sqlite3 :memory: ".read tools/workloads/orders.sql"
ROUNDS ?= 5
FUZZ_SECONDS ?= 60
RUN_NEEDS := cairn-measure cairn-probe cairn-malloc cairn-malloc-hardened

# The package manager takes one caller at a time, and the builds are parallel by themselves.
.NOTPARALLEL:
.PHONY: build configure run bench test prove fuzz docs deb wheel crates prove-packages install clean

build: configure
	cmake --build $(BUILD) -j $(JOBS)

configure: packages-build
	@cmake --preset release --log-level=NOTICE >/dev/null

packages-%:
	@dev/install-packages $*

run: configure packages-run
	@cmake --build $(BUILD) -j $(JOBS) --target $(RUN_NEEDS)
	@tools/bin/cairn run --rounds $(ROUNDS) $(RUN_FLAGS) -- $(CMD)

bench: packages-build packages-run
	@tools/bin/cairn bench --install $(BENCH_FLAGS)

test: build packages-run packages-test
	@dev/run-tests $(BUILD) -j $(JOBS)

prove: packages-build packages-prove
	@dev/prove --jobs $(JOBS)

fuzz: packages-build packages-ci
	@dev/fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

docs: packages-docs
	@mkdocs build --strict --quiet
	@echo "build/book/index.html; with search: python3 -m http.server --directory build/book"

deb: packages-build packages-deb
	@dev/make-deb

wheel: packages-build
	@dev/make-wheel

prove-packages: packages-prove-packages
	@dev/prove-packages

crates:
	@dev/make-crates

install: configure packages-run
	cmake --build $(BUILD) -j $(JOBS) --target installed
	cmake --install $(BUILD) --prefix $(PREFIX)
	@# So that the loader finds the libraries for programs that are linked with them.
	@if [ "$$(id -u)" = 0 ] && [ -z "$$DESTDIR" ] && command -v ldconfig >/dev/null; then ldconfig; fi

clean:
	rm -rf build
