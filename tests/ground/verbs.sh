#!/usr/bin/env bash
# Where are libibverbs, its headers and its providers? Prints a directory with include/infiniband and lib, unpacked once from
# Debian's packages (3 MB), never installed. When they cannot be had it says why on stderr, with exit status 77 (skip).
set -uo pipefail
. "$(dirname "$0")/packages.sh"
unpacked verbs libibverbs-dev libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200
