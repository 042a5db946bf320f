#!/usr/bin/env bash
# Where are Prometheus and promtool? Prints a directory with root/usr/bin, unpacked once from Debian's package (19 MB), never
# installed. When it cannot be had it says why on stderr, with exit status 77 (skip).
set -uo pipefail
. "$(dirname "$0")/packages.sh"
unpacked prometheus prometheus
