#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rebuild libmemc_core.so with warnings as errors and put it where the editable install looks for it.
# Usage: scripts/dev_build.sh [python]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${1:-${PYTHON:-python3}}")
case $python in /*) ;; *) python=$PWD/$python ;; esac  # CMake would look for it in the build folder.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
cmake -S "$root" -B "$root/build/dev" -DPython3_EXECUTABLE="$python" -DMEMC_WERROR=ON >/dev/null
cmake --build "$root/build/dev" --parallel "$(nproc)"
mkdir -p "$site/memc"
# Renamed into place: a running process keeps the library it has loaded.
cp "$root/build/dev/libmemc_core.so" "$site/memc/libmemc_core.so.new"
mv "$site/memc/libmemc_core.so.new" "$site/memc/libmemc_core.so"
echo "$site/memc/libmemc_core.so"
