#!/bin/sh
# git's work on a repository: its history as patches, packed anew, every object checked.
#
# usage: history.sh REPOSITORY   bare, and changed by this: give it a fresh copy
#
# The output depends on the repository only: one thread packs, so the pack, which is named by what
# is in it, is the same in each run.
set -eu
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
cd "$1"
git log --all --patch --find-renames --stat | git hash-object --stdin
git -c pack.threads=1 gc --quiet --prune=now
git -c pack.threads=1 repack -a -d -f -q
git fsck --full --strict --no-progress
git rev-list --all --objects | git hash-object --stdin
ls objects/pack/*.pack
