# SPDX-License-Identifier: Apache-2.0
"""What binds an order, the bound over all orders, and that in-place ops count in the choice."""

import itertools

import pytest

from memc.ir.core import Function
from memc.ir.durations import Seconds
from memc.ir.liveness import peak
from memc.ir.text.parser import parse
from memc.passes.base import Pass
from memc.passes.manager import PassManager
from memc.passes.order import reorder as reorder_module
from memc.passes.order.bound import order_bound
from memc.passes.order.problem import arranged, order_problem
from memc.passes.order.reorder import Reorder, Search, reorder
from memc.passes.pipelines import pipeline
from memc.passes.placement.alias_plan import plan_aliases, planned_peak
from memc.solvers.order import OrderProblem, OrderSolution, order_peak


def function_of(body: str, results: str = "f32[64]") -> Function:
    """@main with the lines of `body`, a parameter %x: f32[64] and a state %s: f32[64]."""
    return parse(
        f"func @main(%x: f32[64] {{role = input}}, %s: f32[64] {{role = state}}) -> {results} {{\n{body}\n}}"
    ).main


def names(function: Function) -> list[str]:
    return [v.name for op in function.ops for v in op.results]


def orders_of(problem: OrderProblem) -> list[tuple[int, ...]]:
    """All orders that keep the dependencies."""
    return [
        order
        for order in itertools.permutations(range(len(problem.after)))
        if all(order.index(other) < order.index(op) for op, after in enumerate(problem.after) for other in after)
    ]


def test_problem_of_plain_ops():
    function = function_of(
        """
  %k = constant() {value = dense<f32[]>[2.0]} : f32[]
  %a = mul(%x, %k) : f32[64]
  %b = "foreign"(%a, %a) workspace(%w: u8[65]) : f32[3]
  %y = add(%a, %k) : f32[64]
  return %y"""
    )
    problem = order_problem(function)
    # a and b; the constant, the parameters and the returned value are outside the arena.
    assert problem.sizes == [256, 64]
    assert problem.touches == [[0], [0, 1], [0]]
    assert problem.after == [[], [0], [0]]
    assert problem.scratch == [0, 128, 0]
    assert order_problem(function, 256).scratch == [0, 256, 0]


def test_an_overwrite_follows_the_reads_and_writes_before_it():
    function = function_of(
        """
  %a = exp(%x) : f32[64]
  %b = sin(%a) : f32[64]
  %c = reshape(%a) {shape = [64]} : f32[64] alias %a[0]
  %d = cos(%c) : f32[64]
  %e = neg(%a) plan {in_place = 0} : f32[64] alias %a[0]
  %f = abs(%e) plan {in_place = 0} : f32[64] alias %a[0]
  %y = "sum"(%b, %d, %f) : f32[64]
  return %y"""
    )
    problem = order_problem(function)
    assert problem.sizes == [256] * 3
    assert [sorted(after) for after in problem.after] == [[], [0], [0], [0, 2], [0, 1, 2, 3], [4], [1, 3, 5]]


def test_slices_of_a_concat_do_not_bind_each_other():
    function = function_of(
        """
  %a = exp(%x) : f32[64] alias %c[0]
  %b = neg(%x) : f32[64] alias %c[256]
  %d = sin(%a) : f32[64]
  %c = concat(%a, %b) {axis = 0} : f32[128]
  %e = abs(%c) plan {in_place = 0} : f32[128] alias %c[0]
  %y = "both"(%d, %e) : f32[64]
  return %y"""
    )
    # The concat writes nothing, so only abs has to wait for sin.
    assert [sorted(after) for after in order_problem(function).after] == [[], [], [0], [0, 1], [0, 1, 2, 3], [2, 4]]


def test_a_concat_writes_what_is_not_in_place():
    function = function_of(
        """
  %a = exp(%x) : f32[64] alias %c[0]
  %b = neg(%x) : f32[64]
  %d = sin(%a) : f32[64]
  %c = concat(%a, %b) {axis = 0} : f32[128]
  %y = "both"(%d, %c) : f32[64]
  return %y"""
    )
    assert [sorted(after) for after in order_problem(function).after] == [[], [], [0], [0, 1], [0, 2, 3]]


def test_a_foreign_op_writes_the_older_storage_that_its_result_lies_in():
    function = function_of(
        """
  %a = "make"(%x) : f32[64]
  %b = "read"(%a) : f32[64]
  %c = "update"(%a, %x) plan {in_place = 0} : f32[64] alias %a[0]
  %y = "sum"(%b, %c) : f32[64]
  return %y"""
    )
    assert order_problem(function).after[2] == [0, 1]


def test_a_state_is_read_before_it_is_overwritten():
    function = function_of(
        """
  %a = exp(%s) : f32[64]
  %b = neg(%s) plan {in_place = 0} : f32[64] alias %s[0]
  return %a, %b""",
        "(f32[64], f32[64])",
    )
    assert order_problem(function).after == [[], [0]]


def test_ops_with_effects_keep_their_sequence():
    function = function_of(
        """
  %a = exp(%x) : f32[64]
  "log.value"(%x) : ()
  "log.value"(%a) : ()
  %y = neg(%a) : f32[64]
  return %y"""
    )
    assert order_problem(function).after == [[], [], [0, 1], [0]]


def test_constants_stand_before_their_first_reader():
    function = function_of(
        """
  %unread = constant() {value = dense<f32[]>[1.0]} : f32[]
  %k = constant() {value = dense<f32[]>[2.0]} : f32[]
  %a = exp(%x) : f32[64]
  %b = mul(%x, %k) : f32[64]
  %y = add(%a, %b) : f32[64]
  return %y"""
    )
    function.ops = arranged(function.ops, [1, 0, 2])
    assert names(function) == ["unread", "k", "b", "a", "y"]


IN_PLACE_MATTERS = """
  %big = broadcast(%x) {shape = [3, 64]} : f32[3,64]
  %copy = neg(%big) : f32[3,64]
  %r = reduce_sum(%big) {axes = [0], keepdims = false} : f32[64]
  %t = reduce_sum(%copy) {axes = [0], keepdims = false} : f32[64]
  %y = mul(%r, %t) : f32[64]
  return %y"""


def test_in_place_decides_the_order():
    """neg needs no bytes of its own once the other reader of its operand is done."""
    function = function_of(IN_PLACE_MATTERS)
    assert planned_peak(function) == 6 * 256
    reorder(function, Search())
    assert names(function) == ["big", "r", "copy", "t", "y"]
    assert planned_peak(function) == 4 * 256
    assert all(value.alias is None for value in function.values())
    assert all(op.plan.in_place is None for op in function.ops)


def test_the_bound_holds_for_every_order():
    function = function_of(IN_PLACE_MATTERS)
    given = list(function.ops)
    problem = order_problem(function)
    peaks = []
    for order in orders_of(problem):
        function.ops = arranged(given, order)
        assert order_peak(problem, order) == peak(function)
        peaks.append(plan_aliases(function).peak)
    assert order_bound(function) == 3 * 256 < min(peaks) == 4 * 256 < max(peaks)


def test_a_worse_order_is_taken_back(monkeypatch):
    def reverse(problem, solver, **options):
        return OrderSolution(max(orders_of(problem)), 0, 0)

    monkeypatch.setattr(reorder_module, "solve_order", reverse)
    for aliases in ("", "in-place"):
        module = parse(f"func @main(%x: f32[64] {{role = input}}) -> f32[64] {{{IN_PLACE_MATTERS}\n}}")
        PassManager.parse(aliases).run(module)
        ops = list(module.main.ops)
        before = planned_peak(module.main, refine=True)
        reorder(module.main, Search())
        assert planned_peak(module.main, refine=True) <= before
        assert module.main.ops == ops or planned_peak(module.main) < before


def test_the_time_limit_is_for_all_searches_together(monkeypatch):
    limits = []

    def given(problem, solver, *, time_limit, beam_width, target, **others):
        limits.append((time_limit, beam_width))
        return OrderSolution(tuple(range(len(problem.after))), 0, 0)

    monkeypatch.setattr(reorder_module, "solve_order", given)
    reorder(function_of(IN_PLACE_MATTERS), Search("auto", 30.0, 7))
    assert 9 < limits[0][0] <= 10 and all(limit <= 30 and width == 7 for limit, width in limits)


def test_the_work_is_for_all_searches_together(monkeypatch):
    given = []

    def solve(problem, solver, *, work, worth, slack, **others):
        given.append((work, worth, slack))
        return OrderSolution(tuple(range(len(problem.after))), 0, 0, 400)

    monkeypatch.setattr(reorder_module, "solve_order", solve)
    function = function_of(IN_PLACE_MATTERS)
    reached = plan_aliases(function).peak
    reorder(function, Search(slack=0.1, work=900))
    assert given[0] == (300, reached - reached // 10, 0.1)
    assert [work for work, _, _ in given[1:]] == [250, 100, 0, 0]


def test_options():
    (made,) = PassManager.parse("reorder{solver=list, time-limit=1500ms, beam-width=8}").passes
    assert made == Reorder("list", Seconds(1.5), 8)
    assert str(made) == "reorder{solver=list time-limit=1.5s beam-width=8}"


def test_functions_other_than_main_are_ordered_too():
    module = parse(f"func @other(%x: f32[64] {{role = input}}) -> f32[64] {{{IN_PLACE_MATTERS}\n}}")
    manager = PassManager.parse("reorder")
    manager.run(module)
    assert names(module.functions[0])[1] == "r"
    assert manager.given_peak is None


def test_the_manager_notes_the_peak_of_the_given_order():
    module = parse(f"func @main(%x: f32[64] {{role = input}}) -> f32[64] {{{IN_PLACE_MATTERS}\n}}")
    manager = PassManager.parse("reorder,reorder,in-place")
    manager.run(module)
    assert manager.given_peak == 6 * 256
    assert peak(module.main) == 4 * 256


@pytest.mark.parametrize("level", [2, 3])
def test_levels(level):
    passes: list[Pass] = PassManager.parse(pipeline(level)).passes
    kinds = [item.name for item in passes]
    at = kinds.index("reorder")
    assert kinds[at - 2 : at] == ["select-kernels", "pack-weights"]
    assert kinds[at + 1 :] == ["select-kernels", "in-place", "assign-addresses"]
    limits = {getattr(item, "time_limit", None) for item in passes}
    assert limits == ({None} if level == 2 else {None, 10.0})


def test_a_state_gets_its_new_content_after_all_that_read_the_old_one():
    function = function_of(
        """
  %a = exp(%s) : f32[64]
  %b = neg(%x) : f32[64]
  %n = assign(%s, %b) : f32[64]
  return %a, %n""",
        "(f32[64], f32[64])",
    )
    assert sorted(order_problem(function).after[2]) == [0, 1]
    assert order_bound(function) <= planned_peak(function) == 256


def test_the_bound_knows_that_a_slice_may_lie_in_its_concat() -> None:
    module = parse(
        """
        func @main(%x: f32[16] {role = input}) -> f32[16] {
          %a = neg(%x) : f32[16]
          %c = concat(%a, %x) {axis = 0} : f32[32]
          %v = reshape(%a) {shape = [1, 16]} : f32[1,16]
          %d = "use"(%v, %c) : f32[16]
          %r = neg(%d) : f32[16]
          return %r
        }
        """
    )
    # %v lies in the first half of %c: 128 bytes for both, and 64 for %d, which may become the result.
    assert order_bound(module.main) <= plan_aliases(module.main).peak


NEW_ALIASES_HELP = """
  %a = add(%x, %x) : f32[64]
  %b = exp(%a) : f32[64]
  %c = add(%a, %a) : f32[64]
  %d = "small"(%a) : f32[32]
  %e = "large"(%b, %a) : f32[128]
  %y = "end"(%c, %d, %e) : f32[64]
  return %y"""
"""No guess allows a lower peak than the first round's, but the aliases of the order that it finds do."""

NEW_OVERWRITES_HELP = """
  %a = add(%x, %x) : f32[64]
  %b = "small"(%x) : f32[32]
  %c = exp(%a) : f32[64]
  %d = add(%x, %x) : f32[64]
  %e = add(%d, %a) : f32[64]
  %y = "end"(%b, %c, %e) : f32[64]
  return %y"""
"""What helps are the overwrites that the order of the first round would allow."""


@pytest.mark.parametrize(
    "body, large, expected",
    [(NEW_ALIASES_HELP, 1000, 1024), (NEW_ALIASES_HELP, 0, 1024), (NEW_OVERWRITES_HELP, 1000, 640)],
)
def test_aliases_of_a_better_order_are_tried_too(monkeypatch, body, large, expected):
    """Whatever bounds the orders of a guess bounds none with other aliases, such as the new order's."""
    monkeypatch.setattr(reorder_module, "LARGE", large)
    function = function_of(body)
    reorder(function, Search(slack=0.001))
    assert plan_aliases(function).peak == expected
    proven = function_of(body)
    reorder(proven, Search())
    assert plan_aliases(proven).peak == expected
