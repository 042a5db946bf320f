#!/usr/bin/env bash
# Where are AMD's HIP runtime and its headers? Prints a directory with lib/libamdhip64.so.5 and include/hip, unpacked once
# from Debian's packages (5 MB), never installed. When they cannot be had it says why on stderr, with exit status 77 (skip).
set -uo pipefail
. "$(dirname "$0")/packages.sh"
name=hip
[ "$(uname -sm)" = "Linux x86_64" ] || missing "built for Linux on x86-64 only, this is $(uname -sm)"
unpacked hip libamdhip64-5 libamdhip64-dev
