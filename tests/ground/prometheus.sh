#!/usr/bin/env bash
# Where is promtool, which checks rules and tries them on series? Prints a directory with root/usr/bin/promtool, unpacked once
# from Debian's package (23 MB), never installed. When it cannot be had it says why on stderr, with exit status 77 (skip).
set -uo pipefail
. "$(dirname "$0")/packages.sh"
unpacked prometheus prometheus
