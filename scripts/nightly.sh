#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The sweeps that are too long for every change, in an environment made by `scripts/setup.sh dev`: 2,000 random graphs for
# each property, 200 for gradients, tests marked slow, all of onnx's node tests compiled and run, and random ONNX graphs.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${MEMC_VENV:-.venv}
export PATH="$(cd "$venv" && pwd)/bin:$PATH" OMP_NUM_THREADS=1
MEMC_HYPOTHESIS_PROFILE=nightly python -m pytest tests/property tests/unit/gradients -n 2
python -m pytest -m slow tests -n 2
python benchmarks/onnx_backend.py --mode compiled --workers 2
