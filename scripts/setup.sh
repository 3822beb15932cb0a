#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make a virtual environment (default .venv) and install memc into it: `setup.sh [run|dev]`.
# `dev` installs in place, with the tools that tests and formatting need.
# Needs Python 3.10 or newer with venv, and a C++17 compiler; CMake comes with the build.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-run}
venv=${MEMC_VENV:-.venv}
if [ ! -x "$venv/bin/python" ]; then
  "${PYTHON:-python3}" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
case $mode in
  run) "${pip[@]}" ".[verify]" ;;
  dev)
    # An editable install finds its build tools in the environment, so that a change to cpp/ needs no new download.
    "${pip[@]}" scikit-build-core cmake ninja "$(sed -n 's/.*"\(apache-tvm-ffi==[^"]*\)".*/\1/p' pyproject.toml | head -n 1)"
    "${pip[@]}" --no-build-isolation -e ".[dev,docs]"
    ;;
  *) echo "usage: scripts/setup.sh [run|dev]" >&2; exit 2 ;;
esac
echo "environment: $venv" >&2
