#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build the documentation's site into build/site, in the environment's Python; any warning, such as a dead link, is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export NO_MKDOCS_2_WARNING=1 # A notice about another program.
"${PYTHON:-python3}" -m mkdocs build --quiet
echo "build/site/index.html"
