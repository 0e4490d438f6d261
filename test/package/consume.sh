#!/bin/sh
# consume.sh WAY PREFIX WORK: builds the programs of consumer/ in WORK against the package that is
# installed in PREFIX, in one of the documented ways, and runs them. CC and CXX name the compilers.
set -eu
way=$1
prefix=$2
work=$3
consumer=$(dirname "$0")/consumer
rm -rf "$work"
mkdir -p "$work"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig:$prefix/lib64/pkgconfig"
export LD_LIBRARY_PATH="$prefix/lib:$prefix/lib64"

# build_with_pkg_config FLAGS...: heap_c uses libcairn, the other two libcairn-malloc.
build_with_pkg_config() {
    $CC "$consumer/heap.c" -o "$work/heap_c" "$@" $(pkg-config --cflags --libs cairn)
    $CC "$consumer/names.c" -o "$work/names_c" "$@" $(pkg-config --cflags --libs cairn-malloc)
    $CXX "$consumer/names.cc" -o "$work/names_cc" "$@" $(pkg-config --cflags --libs cairn-malloc)
}

case $way in
    cmake_shared | cmake_static)
        form=
        [ "$way" = cmake_static ] && form=-static
        cmake -S "$consumer" -B "$work" -DCMAKE_PREFIX_PATH="$prefix" -DFORM="$form"
        cmake --build "$work"
        ;;
    pkgconfig_shared)
        build_with_pkg_config
        ;;
    pkgconfig_static)
        # The linker prefers a shared library over a static one in the same folder.
        rm -rf "$prefix.static"
        cp -r "$prefix" "$prefix.static"
        find "$prefix.static" -name 'libcairn*.so*' -delete
        export PKG_CONFIG_PATH="$prefix.static/lib/pkgconfig:$prefix.static/lib64/pkgconfig"
        build_with_pkg_config
        ;;
    fully_static)
        build_with_pkg_config -static
        ;;
    *)
        echo "consume.sh: unknown way '$way'" >&2
        exit 2
        ;;
esac

for program in heap_c names_c names_cc; do
    # A program that got the other form of the library would test nothing.
    form=static
    if readelf -d "$work/$program" | grep -q 'NEEDED.*libcairn'; then form=shared; fi
    case $way in
        *_"$form") ;;
        *)
            echo "$way: $program is linked with the $form library" >&2
            exit 1
            ;;
    esac
    echo "$way: running $program"
    "$work/$program"
done
