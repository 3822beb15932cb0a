# SPDX-License-Identifier: Apache-2.0
"""`python -m memc`: the `memc` command."""

import sys

from memc.cli import main

sys.exit(main())
