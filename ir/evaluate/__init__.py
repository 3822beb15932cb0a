# SPDX-License-Identifier: Apache-2.0
"""The meaning of IR, in numpy: evaluated plainly, or inside one poisoned buffer at the planned offsets."""

from .arena import evaluate_in_arena
from .plain import evaluate, run_op

__all__ = ["evaluate", "evaluate_in_arena", "run_op"]
