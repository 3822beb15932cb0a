#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A virtual environment with the PyTorch that the phantom device was made for (3 GB of wheels): scripts/phantom_env.sh DIR.
# `memc estimate SCRIPT.py --python DIR/bin/python` uses it, or MEMC_PHANTOM_PYTHON=DIR/bin/python.
set -euo pipefail
dir=${1:?usage: scripts/phantom_env.sh DIR}
if [ ! -x "$dir/bin/python" ]; then
  "${PYTHON:-python3}" -m venv "$dir"
fi
"$dir/bin/python" -m pip install --quiet torch==2.11.0 torchvision==0.26.0 transformers==5.17.0
"$dir/bin/python" -c 'import torch; print(f"PyTorch {torch.__version__}")'
