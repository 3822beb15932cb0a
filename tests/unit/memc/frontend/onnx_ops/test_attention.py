# SPDX-License-Identifier: Apache-2.0
"""Importing LinearAttention, against the recurrence that defines it."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(8)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("past, wide_decay", [(False, False), (True, True)])
def test_linear_attention(run_node, rule, past, wide_decay):
    batch, tokens, heads, group, dk, dv = 2, 3, 2, 2, 4, 5
    q = RANDOM.standard_normal((batch, tokens, heads * group * dk)).astype(np.float32)
    k = RANDOM.standard_normal((batch, tokens, heads * dk)).astype(np.float32)
    v = RANDOM.standard_normal((batch, tokens, heads * dv)).astype(np.float32)
    start = RANDOM.standard_normal((batch, heads, dk, dv)).astype(np.float32) if past else None
    decay = -RANDOM.uniform(0, 1, (batch, tokens, heads * (dk if wide_decay else 1))).astype(np.float32)
    beta = RANDOM.uniform(0, 1, (batch, tokens, heads)).astype(np.float32)
    inputs = [q, k, v, start, decay if "gated" in rule else None, beta if "delta" in rule else None]
    while inputs[-1] is None:
        inputs.pop()
    attrs = {"q_num_heads": heads * group, "kv_num_heads": heads, "update_rule": rule}
    found, state = run_node("LinearAttention", inputs, 2, opset=27, **attrs)
    for b in range(batch):
        for h in range(heads):
            s = (start[b, h] if past else np.zeros((dk, dv))).astype(np.float64)
            for t in range(tokens):
                key, value = k[b, t].reshape(heads, dk)[h], v[b, t].reshape(heads, dv)[h]
                if "gated" in rule:
                    s = np.exp(decay[b, t].reshape(heads, -1)[h])[:, None] * s
                if "delta" in rule:
                    value = beta[b, t, h] * (value - s.T @ key)
                s = s + np.outer(key, value)
                queries = q[b, t].reshape(heads, group, dk)[h]
                output = found[b, t].reshape(heads, group, dv)[h]
                np.testing.assert_allclose(output, queries @ s / 2, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(state[b, h], s, rtol=1e-4, atol=1e-5)


def test_missing_inputs_are_named(run_node):
    x = np.zeros((1, 1, 2), np.float32)
    with pytest.raises(UnsupportedError, match="update_rule gated, which does not fit"):
        run_node("LinearAttention", [x, x, x], 2, opset=27, q_num_heads=1, kv_num_heads=1, update_rule="gated")
