# SPDX-License-Identifier: Apache-2.0
"""`python -m memc.cli`: the `memc` command."""

import sys

from .app import main

sys.exit(main())
