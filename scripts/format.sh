#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Format everything, or with --check only say what is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
# The wheel of clang-format puts its program beside Python's.
clang_format=$("$python" -c "import sys, pathlib; print(pathlib.Path(sys.executable).parent / 'clang-format')")
mapfile -t sources < <(find cpp tests/cpp runtime/codegen/cuda_kernels -name "*.cc" -o -name "*.h" -o -name "*.cu" -o -name "*.cuh")
if [ "${1:-}" = --check ]; then
  "$python" -m ruff format --check .
  "$python" -m ruff check .
  "$clang_format" --dry-run --Werror "${sources[@]}"
else
  "$python" -m ruff format .
  "$python" -m ruff check --fix .
  "$clang_format" -i "${sources[@]}"
fi
