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
for item in python/memc/*; do
  ln -s "$root/$item" "$tree/memc/$(basename "$item")"
done
for folder in ir passes runtime; do
  ln -s "$root/$folder" "$tree/memc/$folder"
done
cd "$tree"
python=${PYTHON:-python3}
# As Python 3.10, but for the stubs of a numpy that needs 3.12 or newer, which mean something else there.
version=$("$python" -c 'import sys; print("3.10" if sys.version_info < (3, 12) else "%d.%d" % sys.version_info[:2])')
exec "$python" -m mypy --config-file "$root/pyproject.toml" --python-version "$version" -p memc "$@"
