#!/bin/sh
# Work of git on a repository: it writes the history as patches, packs again and checks all objects.
#
# usage: history.sh REPOSITORY   bare; the script changes it, so it needs a fresh copy
#
# The output depends on the repository only: one thread packs, so the pack, whose name is a hash of
# its content, does not differ between runs.
set -eu
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
cd "$1"
git log --all --patch --find-renames --stat | git hash-object --stdin
git -c pack.threads=1 gc --quiet --prune=now
git -c pack.threads=1 repack -a -d -f -q
git fsck --full --strict --no-progress
git rev-list --all --objects | git hash-object --stdin
ls objects/pack/*.pack
