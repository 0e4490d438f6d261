#!/bin/sh
# Builds everything that is installed with musl's compiler (Debian: musl-tools), warnings as errors.
# Runs test/musl/musl_program.c linked statically, linked with the archive for musl's dynamic linker,
# and with the shared library preloaded.
#
# usage: check_musl.sh BUILD    the libraries are then in BUILD/musl
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?usage: check_musl.sh BUILD}/musl
mkdir -p "$out/kernel"
out=$(cd "$out" && pwd)
# The kernel's headers: Alpine has them next to musl's, and Debian's compiler leaves them out.
for headers in /usr/include/linux /usr/include/asm-generic "/usr/include/$(uname -m)-linux-gnu/asm"; do
    ln -sfn "$headers" "$out/kernel/${headers##*/}"
done

# Debian has no C++ library for musl. The only C++ source needs none, but CMake would link with one
# if it could link its own tests.
cmake -S "$root" -B "$out" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=musl-gcc \
    -DCMAKE_C_FLAGS="-idirafter $out/kernel" -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY \
    -DCAIRN_TESTS=OFF -DCAIRN_BENCH=OFF -DCAIRN_EXAMPLES=OFF >/dev/null
cmake --build "$out" --target installed >"$out/log" || {
    cat "$out/log"
    exit 1
}

cd "$out"
run() {
    way=$1 preload=$2
    shift 2
    musl-gcc -std=gnu17 -O1 -Wall -Wextra -Werror -fno-builtin -I"$root/include" \
        "$root/test/musl/musl_program.c" "$@" -o "program-$way"
    LD_PRELOAD=$preload "./program-$way" || {
        echo "musl's program ($way) failed with status $?" >&2
        exit 1
    }
}
run static "" -static libcairn-malloc.a
run pie "" -fPIE -pie libcairn-malloc.a
run preloaded "$out/libcairn-malloc.so.1" -fPIE -pie -DPRELOADED
