#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests that run PyTorch on the phantom device, in an environment of its own: scripts/phantom_tests.sh [DIR].
# Making the environment takes some minutes the first time, the tests about ten.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/memc/phantom-env}
scripts/phantom_env.sh "$dir"
MEMC_PHANTOM_PYTHON="$dir/bin/python" "${PYTHON:-python3}" -m pytest -n "${MEMC_TEST_WORKERS:-2}" tests/unit/memc/estimation/phantom tests/unit/memc/torch -m phantom
