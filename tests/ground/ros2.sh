#!/bin/sh
# Where is a CPython with rclpy and Fast DDS' middleware? Prints its python; made once from PyPI's wheels (ros-rclpy, for
# CPython 3.11 on x86-64), then kept in the cache. What is missing is said on stderr, with exit status 77 (skip).
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-gpu
directory=$cache/ros2
packages="ros-rclpy[fastrtps]==9.1.2 ros-std-msgs==5.5.1 ros-std-srvs==5.5.1"

if [ "$(cat "$directory/.complete" 2>/dev/null)" != "$packages" ]; then
    mkdir -p "$cache"
    # One maker at a time: a second caller waits and finds it complete.
    exec 9>"$directory.lock"
    flock 9
    if [ "$(cat "$directory/.complete" 2>/dev/null)" != "$packages" ]; then
        if ! python3.11 -V >/dev/null 2>&1; then
            echo "ros2.sh: there is no python3.11" >&2
            exit 77
        fi
        rm -rf "$directory"
        # shellcheck disable=SC2086
        if ! { python3.11 -m venv "$directory" &&
            nice -n 5 "$directory/bin/pip" install --quiet --prefer-binary $packages; } >"$directory.log" 2>&1; then
            echo "ros2.sh: no rclpy: $(tail -n 1 "$directory.log") (log: $directory.log)" >&2
            exit 77
        fi
        echo "$packages" >"$directory/.complete"
    fi
fi
echo "$directory/bin/python"
