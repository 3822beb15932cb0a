# SPDX-License-Identifier: Apache-2.0
"""Streamed weights in functions: what is moved, that plans keep their budget and their bits, and what may not be moved."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from memc.ir.copies import host_params
from memc.ir.core import Array
from memc.ir.errors import BudgetError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.function_footprint import footprint_of
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager

WIDTH = 128
"""Weights of 64 KiB."""

PRODUCT = "{transpose_a = false, transpose_b = false}"


def chain(*read: str, batch: int = 128, extra: str = "") -> str:
    """A function whose layers read the weights of these names."""
    names = dict.fromkeys(read)
    params = "".join(f", %{name}: f32[{WIDTH},{WIDTH}] {{role = weight}}" for name in names)
    lines, last = [], "x"
    for number, name in enumerate(read):
        lines.append(f"  %m{number} = matmul(%{last}, %{name}) {PRODUCT} : f32[{batch},{WIDTH}]")
        lines.append(f"  %t{number} = tanh(%m{number}) : f32[{batch},{WIDTH}]")
        last = f"t{number}"
    lines.append(f"  %y = neg(%{last}) : f32[{batch},{WIDTH}]")
    head = f"func @main(%x: f32[{batch},{WIDTH}] {{role = input}}{params}{extra}) -> f32[{batch},{WIDTH}] {{"
    return "\n".join([head, *lines, "  return %y", "}", ""])


def module_of(text: str) -> Module:
    module = parse(text)
    rng = np.random.default_rng(0)
    for param in module.main.params:
        if param.role is not None and param.role.value == "weight":
            module.weights[param.name] = (rng.normal(size=param.type.shape) / 12).astype(np.float32)
    return module


def planned(text: str, budget: int, options: str = "link=memory") -> Module:
    module = module_of(text)
    PassManager.parse(f"offload{{total budget={budget} {options}}},in-place,assign-addresses,group-copies").run(module)
    return module


def peak(module: Module) -> int:
    return footprint_of(module.main, module.target).peak


def whole(text: str) -> int:
    """The peak if all weights are resident."""
    module = module_of(text)
    PassManager.parse("reorder,in-place,assign-addresses").run(module)
    return peak(module)


def streamed(module: Module) -> list[str]:
    return [p.name for p in host_params(module.main)]


def assert_sound(module: Module, text: str) -> None:
    """The plan passes the checkers, and the function gives the bits of the one without copies whenever they run."""
    verify(module)
    check_plan(module, module.target.alignment)
    check_copy_races(module)
    x = {p.name: np.random.default_rng(1).normal(size=p.type.shape).astype(np.float32) for p in module.main.params[:1]}
    expected: dict[str, Array] = evaluate(module_of(text), x)
    for times in ("start", "done", 1, 2):
        found = evaluate_in_arena(module, x, copies=times)
        assert all(found[name].tobytes() == expected[name].tobytes() for name in expected), times


LAYERS = [f"w{n}" for n in range(12)]


def test_a_ladder_of_budgets() -> None:
    text = chain(*LAYERS)
    most = whole(text)
    last_peak, last_time, counts = most, 0.0, []
    for share in (100, 95, 90, 75, 60, 50, 40, 33):
        budget = most * share // 100
        module = module_of(text)
        manager = PassManager.parse(
            f"offload{{total budget={budget} link=memory}},in-place,assign-addresses,group-copies"
        )
        manager.run(module)
        (found,) = [finding for finding in manager.findings if hasattr(finding, "added")]
        assert peak(module) <= min(budget, last_peak)
        assert found.added >= last_time
        last_peak, last_time = peak(module), found.added
        counts.append(len(streamed(module)))
        assert_sound(module, text)
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] >= 10
    assert last_time < 0.2


def test_the_least_that_is_reached_is_named_and_reached() -> None:
    text = chain(*LAYERS)
    with pytest.raises(BudgetError, match="cannot be met: the least reachable peak is") as error:
        planned(text, 1000)
    assert error.value.exit_code == 4
    match = re.search(r"the least reachable peak is (\d+) bytes", str(error.value))
    assert match is not None
    least = int(match[1])
    module = planned(text, least)
    assert peak(module) <= least
    assert len(streamed(module)) == 12
    assert_sound(module, text)
    # Input and output, one layer's weight, and what its op reads and makes.
    assert least <= (2 * 128 * WIDTH + 3 * 128 * WIDTH + WIDTH * WIDTH) * 4
    with pytest.raises(BudgetError, match=f"the least reachable peak is {least} bytes"):
        planned(text, least - 1)


def test_tied_weights_far_apart_have_one_copy_on_the_host_and_two_windows() -> None:
    text = chain("e", *LAYERS, "e")
    module = planned(text, whole(text) // 3)
    assert "e" in streamed(module)
    starts = [op for op in module.main.ops if op.name == "prefetch_start" and op.operands[0].name == "e"]
    assert len(starts) == 2
    host = footprint_of(module.main, module.target)["host"]
    assert host == len(streamed(module)) * WIDTH * WIDTH * 4
    assert_sound(module, text)


def test_uses_next_to_each_other_share_a_window() -> None:
    text = chain(*(name for name in LAYERS for _ in range(2)))
    module = planned(text, whole(text) // 3)
    starts = [op for op in module.main.ops if op.name == "prefetch_start"]
    assert len(starts) == len(streamed(module)) >= 8
    assert_sound(module, text)


def test_a_weight_of_an_unrolled_loop_stays() -> None:
    """It is read by every other op; all others are better streamed."""
    text = chain(*(name for layer in LAYERS for name in ("cell", layer)))
    module = planned(text, whole(text) // 2)
    assert "cell" not in streamed(module) and streamed(module)
    assert_sound(module, text)


def test_views_are_made_anew_in_each_window() -> None:
    text = chain("e", *LAYERS)
    flat = f"  %f = reshape(%e) {{shape = [{WIDTH * WIDTH}]}} : f32[{WIDTH * WIDTH}]\n"
    square = f"  %g = reshape(%f) {{shape = [{WIDTH}, {WIDTH}]}} : f32[{WIDTH},{WIDTH}]\n"
    head, body = text.split("{\n", 1)
    body = body.replace("(%x, %e)", "(%x, %g)").replace(
        "  %y = neg(%t12)", f"  %v = matmul(%t12, %g) {PRODUCT} : f32[128,{WIDTH}]\n  %y = neg(%v)"
    )
    text = head + "{\n" + flat + square + body
    module = planned(text, whole(text) // 3)
    assert "e" in streamed(module)
    starts = [op for op in module.main.ops if op.name == "prefetch_start" and op.operands[0].name == "e"]
    assert len(starts) == 2 and sum(op.name == "reshape" for op in module.main.ops) == 4
    assert_sound(module, text)


def test_what_may_not_be_moved() -> None:
    """A weight of no bytes, one that is returned, one that an op reads which memc does not know, small ones."""
    text = chain(*LAYERS).replace(
        ") -> f32[128,128] {",
        ", %none: f32[0,128] {role = weight}, %mine: f32[128,128] {role = weight}, %small: f32[128] {role = weight}) -> "
        "(f32[128,128], f32[128,128], f32[0,128]) {",
    )
    text = text.replace(
        "  return %y", "  %c = copy(%w3) : f32[128,128]\n  %n = neg(%none) : f32[0,128]\n  return %y, %c, %n"
    )
    text = text.replace(
        "%t0 = tanh(%m0)",
        '%f = "their.op"(%x, %mine) : f32[128,128]\n  %s = add(%m0, %small) : f32[128,128]\n'
        "  %u = add(%s, %f) : f32[128,128]\n  %t0 = tanh(%u)",
    )
    module = planned(text, whole(text) // 2)
    names = streamed(module)
    assert len(names) >= 5 and not {"none", "mine", "small"} & set(names)
    verify(module)
    check_plan(module, module.target.alignment)
    check_copy_races(module)


def test_budgets_of_arenas_alone_move_no_weights() -> None:
    module = module_of(chain(*LAYERS))
    PassManager.parse("offload{budget=100% link=memory}").run(module)
    assert not streamed(module)


def test_the_host_budget_is_kept() -> None:
    text = chain(*LAYERS)
    budget = whole(text) - 4 * WIDTH * WIDTH * 4
    module = planned(text, budget, f"link=memory host-budget={6 * WIDTH * WIDTH * 4}")
    assert 4 <= len(streamed(module)) <= 6 and peak(module) <= budget
    with pytest.raises(BudgetError, match="with a host budget of"):
        planned(text, budget, "link=memory host-budget=65536")


def test_a_slow_link_takes_what_recomputation_gives(tmp_path: Path) -> None:
    """Where the arena alone can give way, streams are only taken where they are quicker."""
    wide = f"""\
func @main(%x: f32[2048,128] {{role = input}}, %w0: f32[128,128] {{role = weight}}, %w1: f32[128,128] {{role = weight}}) -> f32[2048,128] {{
  %a = relu(%x) : f32[2048,128]
  %b = matmul(%a, %w0) {PRODUCT} : f32[2048,128]
  %c = exp(%b) : f32[2048,128]
  %d = matmul(%c, %w1) {PRODUCT} : f32[2048,128]
  %e = exp(%d) : f32[2048,128]
  %f = add(%e, %a) : f32[2048,128]
  %y = matmul(%f, %w1) {PRODUCT} : f32[2048,128]
  return %y
}}
"""
    budget = whole(wide) - WIDTH * WIDTH * 4
    slow = tmp_path / "slow.json"
    way = '{"bandwidth": 1e8, "shared": 1e8, "latency": 0.1}'
    slow.write_text(f'{{"link": {{"out": {way}, "in": {way}}}}}')
    recomputed = planned(wide, budget, f"link={slow}")
    assert not streamed(recomputed) and peak(recomputed) <= budget
    assert any(op.plan.recompute for op in recomputed.main.ops)
    alone = module_of(wide)
    PassManager.parse(f"rematerialize{{total budget={budget}}},in-place,assign-addresses,group-copies").run(alone)
    assert str(recomputed).split("\n\n")[-1] == str(alone).split("\n\n")[-1]


def test_recomputation_and_streams_together_reach_what_neither_does() -> None:
    """A function whose arena and whose weights are both too large."""
    text = chain(*LAYERS, batch=512)
    saved = "".join(
        f"  %s{n} = {'add(%y0' if n == 0 else f'add(%s{n - 1}'}, %t{n}) : f32[512,128]\n" for n in range(12)
    )
    text = text.replace("  %y = neg(%t11)", "  %y0 = neg(%t11)").replace("  %y0 : ", "  %y0 : ")
    text = text.replace("  return %y\n", saved + "  return %s11\n")
    most = whole(text)
    found = []
    for share in (60, 45, 35):
        module = planned(text, most * share // 100)
        assert peak(module) <= most * share // 100
        assert_sound(module, text)
        found.append(
            (
                len(streamed(module)),
                sum(op.name == "offload_start" or bool(op.plan.recompute) for op in module.main.ops),
            )
        )
    assert found[-1][0] > 0 and found[-1][1] > 0
