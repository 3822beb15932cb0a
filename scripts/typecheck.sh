#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Strict type check. Type checkers do not see folders that the build maps into the package (ir -> memc.ir), so this
# checks a tree of links in which they are where they install.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tree=build/typing
rm -rf "$tree"
mkdir -p "$tree/memc"
for item in memc/*; do
  ln -s "$root/$item" "$tree/$item"
done
for folder in ir passes runtime; do
  ln -s "$root/$folder" "$tree/memc/$folder"
done
cd "$tree"
exec "${PYTHON:-python3}" -m mypy --config-file "$root/pyproject.toml" -p memc "$@"
