#!/bin/sh
# A 32-bit build is refused in one sentence: by the header that all others include, in C and in C++,
# and when CMake configures. Nothing is linked, so that no 32-bit library is needed.
#
# usage: CC=compiler CXX=compiler refuse_32_bit.sh DIRECTORY
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
sentence="Cairn needs 64-bit addresses: this is a 32-bit build."
rm -rf "$1"
mkdir -p "$1"
cd "$1"

# refused WHAT STATUS FILE ERRORS: it failed with the sentence, and with at most ERRORS errors.
refused() {
    if [ "$2" -eq 0 ] || ! tr '\n' ' ' <"$3" | grep -qF "$sentence" ||
        [ "$(grep -cE 'error:|CMake Error' "$3")" -gt "$4" ]; then
        echo "$1 is not refused in one sentence: status $2" >&2
        cat "$3" >&2
        exit 1
    fi
    echo "$1: $sentence"
}

for language in c c++; do
    compiler=${CC:-cc}
    [ $language = c ] || compiler=${CXX:-c++}
    status=0
    "$compiler" -m32 -x $language -fsyntax-only -I"$root/include" \
        -include cairn/api.h /dev/null 2>header.txt || status=$?
    refused "the header ($language)" $status header.txt 1
done

status=0
cmake -S "$root" -B build -DCMAKE_C_FLAGS=-m32 -DCMAKE_CXX_FLAGS=-m32 \
    -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY >cmake.txt 2>&1 || status=$?
refused "CMake" $status cmake.txt 1
