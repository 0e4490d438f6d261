#!/bin/sh
# Builds TLSF's core as a program without an operating system's C library would, and runs it:
# freestanding, with the compiler's own headers only, linked with nothing.
#
# usage: check_freestanding.sh BUILD [COMPILER [EMULATOR…]]
#
# The program is test/region/freestanding_program.c. Prints what is undefined, if anything is.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?usage: check_freestanding.sh BUILD [COMPILER]}/freestanding
compiler=${2:-cc}
if [ $# -gt 2 ]; then shift 2; else shift $#; fi # what is left starts the program

mkdir -p "$out"
headers=$("$compiler" -print-file-name=include)
# Linux compilers for aarch64 call libgcc for atomic operations, and libgcc needs a C library to ask
# the processor which instructions it has. Compilers for bare metal emit the instructions themselves.
atomics=
case $("$compiler" -dumpmachine) in aarch64*) atomics=-mno-outline-atomics ;; esac
"$compiler" -std=gnu17 -O2 -Wall -Wextra -Werror \
    -ffreestanding -nostdlib -nostdinc -isystem "$headers" -static -fno-stack-protector \
    $atomics \
    -I"$root/include" -I"$root/src" \
    "$root"/src/region/tlsf*.c "$root/src/base/check.c" "$root/test/region/freestanding_program.c" \
    -o "$out/program"
if "$@" "$out/program"; then
    echo "TLSF runs without libc: $(wc -c <"$out/program") bytes"
else
    echo "the freestanding program failed with status $?" >&2
    exit 1
fi
