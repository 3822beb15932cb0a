#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Set up a development environment and run all tests but the nightly sweeps.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh dev
venv=${MEMC_VENV:-.venv}
export PATH="$PWD/$venv/bin:$PATH" OMP_NUM_THREADS=1
case $venv in /*) PATH="$venv/bin:$PATH" ;; esac
scripts/cpp_tests.sh
lit -q tests/golden
python -m pytest -m "not slow" -n "${MEMC_TEST_WORKERS:-2}" "$@"
