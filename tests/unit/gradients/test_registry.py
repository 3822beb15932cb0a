# SPDX-License-Identifier: Apache-2.0
"""Every op has a gradient, or a reason to have none."""

from memc.ir.ops.base import registered

NO_GRADIENT = {
    "bitcast": "bits are not numbers",
    "max_pool_grad": "a second derivative",
    "scatter_elements_combine": "stands in the expansion of scatter_elements, which has a rule",
    "scatter_nd_combine": "stands in the expansion of scatter_nd, which has a rule",
}


def test_every_op_has_a_rule_or_a_reason():
    without = {definition.name for definition in registered() if definition.gradient is None}
    assert without == set(NO_GRADIENT), "state a rule, or add the reason here"
