#!/bin/sh
# install.sh BUILD PREFIX: installs the build into a folder and moves it to PREFIX, so that a path
# of the first folder in the package makes the consumers fail.
set -eu
build=$1
prefix=$2
rm -rf "$prefix" "$prefix.first"
cmake --install "$build" --prefix "$prefix.first"
mv "$prefix.first" "$prefix"
