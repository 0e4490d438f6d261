#!/bin/sh
# Builds libcairn-malloc.a with musl's compiler (Debian: musl-tools), warnings as errors, links
# test/musl/musl_program.c with it, once wholly static and once for musl's dynamic linker, and runs
# both.
#
# usage: check_musl.sh BUILD
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?usage: check_musl.sh BUILD}/musl
rm -rf "$out"
mkdir -p "$out/objects" "$out/kernel"
# The kernel's headers, which a system of musl's has among its own, and Debian's compiler leaves out.
for headers in /usr/include/linux /usr/include/asm-generic "/usr/include/$(uname -m)-linux-gnu/asm"; do
    ln -s "$headers" "$out/kernel/"
done
out=$(cd "$out" && pwd)
cd "$out/objects"

options="-O1 -fPIC -Wall -Wextra -Wshadow -Werror -I$root/include -I$root/src
    -idirafter $out/kernel"
library="-fvisibility=hidden -ftls-model=initial-exec -fno-builtin -DCAIRN_HARDENED=0"
find "$root"/src -name '*.c' ! -name dlopen.c -print0 | # that one is in no archive
    xargs -0 -P "$(nproc)" -n 8 musl-gcc -std=gnu17 $options $library -c
# It includes no header, so it can do without a C++ library.
c++ -std=c++17 $options $library -nostdinc -nostdinc++ -c "$root/src/front/nothrow.cc"
ar rcs ../libcairn-malloc.a ./*.o
cd ..

for way in static pie; do
    musl-gcc -std=gnu17 $options -fno-builtin "-$way" "$root/test/musl/musl_program.c" \
        libcairn-malloc.a -o "program-$way"
    "./program-$way" || {
        echo "musl's program ($way) failed with status $?" >&2
        exit 1
    }
done
