# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from memc.ir.core import FUSED, Role
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import peak
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes.kernels.fuse import expansion
from memc.passes.manager import PassManager

CONV = "{strides = [1,1], pads = [1,1,1,1], dilations = [1,1], group = 1}"


def groups(module: Module) -> list[list[str]]:
    """The ops inside each fused group, or the op's own name."""
    return [
        [inner.name for inner in op.region.ops] if op.region is not None else [op.name]
        for op in module.main.ops
        if op.name != "constant"
    ]


def checked(text: str, passes: str = "fuse{target=none}") -> Module:
    """Fused evaluation equals plain evaluation, also planned in place; the peak does not rise."""
    plain, module = parse(text), parse(text)
    PassManager.parse(passes).run(module)
    numbers = np.random.default_rng(1)
    inputs = {
        p.name: numbers.uniform(-2, 2, p.type.shape).astype(p.type.dtype.numpy)
        for p in plain.main.params_of(Role.INPUT)
    }
    expected = evaluate(plain, inputs)
    for name, value in evaluate(module, inputs).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5)
    planned = parse(text)
    for pipeline in ("in-place,assign-addresses", f"{passes},in-place,assign-addresses"):
        before = peak(planned.main) if pipeline.startswith("fuse") else None
        planned = parse(text)
        PassManager.parse(pipeline).run(planned)
        assert before is None or peak(planned.main) <= before
    for name, value in evaluate_in_arena(planned, inputs).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5)
    return module


def function(body: str, result: str, params: str) -> str:
    return f"func @main({params}) -> {result} {{\n{body}\n  return %y\n}}\n"


X = "%x: f32[4,16] {role = input}"


def test_chain_with_a_diamond_is_one_kernel():
    body = """%c = constant() {value = dense<f32[]>[0.5]} : f32[]
      %a = mul(%x, %c) : f32[4,16]
      %b = erf(%a) : f32[4,16]
      %d = add(%b, %c) : f32[4,16]
      %y = mul(%a, %d) : f32[4,16]"""
    module = checked(function(body, "f32[4,16]", X))
    assert groups(module) == [["mul", "erf", "add", "mul"]]
    fused = module.main.ops[-1]
    assert fused.name == FUSED and [v.name for v in fused.operands] == ["x", "c"] and fused.result.name == "y"


def test_returned_and_shared_values_stay_outside():
    text = """func @main(%x: f32[4,16] {role = input}) -> (f32[4,16], f32[4,16]) {
      %a = exp(%x) : f32[4,16]
      %b = neg(%a) : f32[4,16]
      %c = abs(%a) : f32[4,16]
      %d = relu(%c) : f32[4,16]
      return %b, %d
    }"""
    assert groups(checked(text)) == [["exp"], ["neg"], ["abs", "relu"]]


def test_epilogue_of_a_reduction():
    body = """%s = reduce_sum(%x) {axes = [1], keepdims = true} : f32[4,1]
      %c = constant() {value = dense<f32[]>[0.0625]} : f32[]
      %m = mul(%s, %c) : f32[4,1]
      %y = sub(%x, %m) : f32[4,16]"""
    # The difference reads each mean 16 times: it does not compute it again for each element.
    assert groups(checked(function(body, "f32[4,16]", X))) == [["reduce_sum", "mul"], ["sub"]]


def test_prologue_of_a_reduction():
    body = """%d = mul(%x, %x) : f32[4,16]
      %s = reduce_sum(%d) {axes = [1], keepdims = true} : f32[4,1]
      %y = sqrt(%s) : f32[4,1]"""
    assert groups(checked(function(body, "f32[4,1]", X))) == [["mul", "reduce_sum", "sqrt"]]


def test_two_reductions_are_two_kernels():
    body = """%s = reduce_sum(%x) {axes = [1], keepdims = true} : f32[4,1]
      %t = reduce_max(%x) {axes = [1], keepdims = true} : f32[4,1]
      %y = add(%s, %t) : f32[4,1]"""
    assert sorted(map(len, groups(checked(function(body, "f32[4,1]", X))))) == [1, 2]


CONV_BODY = f"""%p = exp(%x) : f32[1,2,6,6]
  %v = conv(%p, %w) {CONV} : f32[1,3,6,6]
  %b = add(%v, %z) : f32[1,3,6,6]
  %y = relu(%b) : f32[1,3,6,6]"""
CONV_PARAMS = "%x: f32[1,2,6,6] {role = input}, %w: f32[3,2,3,3] {role = input}, %z: f32[1,3,6,6] {role = input}"


def test_conv_takes_an_epilogue_but_no_prologue():
    assert groups(checked(function(CONV_BODY, "f32[1,3,6,6]", CONV_PARAMS))) == [["exp"], ["conv", "add", "relu"]]


def test_library_kernels_keep_their_ops():
    module = checked(function(CONV_BODY, "f32[1,3,6,6]", CONV_PARAMS), "fuse{target=llvm}")
    assert groups(module) == [["exp"], ["conv"], ["add", "relu"]]


def test_expensive_ops_are_not_repeated_for_a_broadcast():
    params = "%x: f32[4,16] {role = input}, %z: f32[16] {role = input}"
    body = "%e = {op}(%z) : f32[16]\n%y = add(%x, %e) : f32[4,16]"
    assert groups(checked(function(body.replace("{op}", "exp"), "f32[4,16]", params))) == [["exp"], ["add"]]
    assert groups(checked(function(body.replace("{op}", "neg"), "f32[4,16]", params))) == [["neg", "add"]]


def test_transposes_fuse_and_views_do_not():
    body = """%e = exp(%x) : f32[4,16]
      %t = transpose(%e) {perm = [1,0]} : f32[16,4]
      %r = reshape(%t) {shape = [64]} : f32[64]
      %y = neg(%r) : f32[64]"""
    assert groups(checked(function(body, "f32[64]", X))) == [["exp", "transpose"], ["reshape"], ["neg"]]


def test_concat_stays_zero_copy():
    body = "%a = exp(%x) : f32[4,16]\n%b = neg(%x) : f32[4,16]\n%y = concat(%a, %b) {axis = 0} : f32[8,16]"
    assert groups(checked(function(body, "f32[8,16]", X))) == [["exp"], ["neg"], ["concat"]]


def test_group_limits():
    chain = "\n".join(f"%a{i + 1} = neg(%a{i}) : f32[4,16]" for i in range(9))
    text = function(f"%a0 = exp(%x) : f32[4,16]\n{chain}\n%y = abs(%a9) : f32[4,16]", "f32[4,16]", X)
    sizes = [len(g) for g in groups(checked(text, "fuse{target=none max-ops=4}"))]
    assert max(sizes) == 4 and sum(sizes) == 11
    body = "%a = add(%x, %u) : f32[4,16]\n%b = add(%v, %w) : f32[4,16]\n%y = mul(%a, %b) : f32[4,16]"
    params = ", ".join(f"%{n}: f32[4,16] {{role = input}}" for n in "xuvw")
    assert groups(checked(function(body, "f32[4,16]", params), "fuse{target=none max-operands=3}")) == [
        ["add"],
        ["add", "mul"],
    ]


def test_fusion_that_would_raise_the_peak_is_not_taken():
    # p and q die in their product; computing that only at the end would keep both through the wide middle.
    body = """%p = broadcast(%x) {shape = [64,16]} : f32[64,16]
      %t = transpose(%p) {perm = [1,0]} : f32[16,64]
      %u = reshape(%t) {shape = [64,16]} : f32[64,16]
      %q = matmul(%p, %w) {transpose_a = false, transpose_b = false} : f32[64,16]
      %m = mul(%u, %q) : f32[64,16]
      %wide = matmul(%m, %h) {transpose_a = false, transpose_b = false} : f32[64,64]
      %r = reduce_max(%wide) {axes = [1], keepdims = true} : f32[64,1]
      %y = add(%m, %r) : f32[64,16]"""
    params = ", ".join(
        f"%{n}: {t} {{role = input}}" for n, t in (("x", "f32[1,16]"), ("w", "f32[16,16]"), ("h", "f32[16,64]"))
    )
    checked(function(body, "f32[64,16]", params))
    body = """%p = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[64,16]
      %q = matmul(%x, %v) {transpose_a = false, transpose_b = false} : f32[64,16]
      %m = mul(%p, %q) : f32[64,16]
      %wide = matmul(%x, %h) {transpose_a = false, transpose_b = false} : f32[64,64]
      %r = reduce_max(%wide) {axes = [1], keepdims = true} : f32[64,1]
      %y = add(%m, %r) : f32[64,16]"""
    params = ", ".join(
        f"%{n}: {t} {{role = input}}"
        for n, t in (("x", "f32[64,16]"), ("w", "f32[16,16]"), ("v", "f32[16,16]"), ("h", "f32[16,64]"))
    )
    module = checked(function(body, "f32[64,16]", params))
    assert ["mul", "add"] not in groups(module)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_never_get_a_higher_peak(random_module, seed):
    peaks = []
    for passes in ("materialize-returns,decompose,in-place", "materialize-returns,decompose,fuse,in-place"):
        module, _ = random_module(seed, 30)
        PassManager.parse(passes).run(module)
        peaks.append(peak(module.main))
    assert peaks[1] <= peaks[0]


@pytest.mark.parametrize("seed", range(20))
def test_groups_hold_at_most_one_reduction(random_module, seed):
    module, _ = random_module(seed, 30)
    PassManager.parse("materialize-returns,decompose,fuse{target=none}").run(module)
    for group in groups(module):
        assert sum(name.startswith("reduce_") or name == "matmul" for name in group) <= 1


@pytest.mark.parametrize(("dtype", "most"), [("f32", 12), ("bf16", 4)])
def test_values_used_twice_do_not_pile_up(dtype, most):
    """A kernel's code would double with each."""
    body = "\n".join(f"%{i + 1} = {'mul' if i % 2 else 'max'}(%{i}, %{i}) : {dtype}[4,16]" for i in range(30))
    text = f"func @main(%0: {dtype}[4,16] {{role = input}}) -> {dtype}[4,16] {{\n{body}\nreturn %30\n}}"
    module = parse(text)
    PassManager.parse("fuse{target=none}").run(module)
    sizes = [len(group) for group in groups(module)]
    assert sum(sizes) == 30 and most // 2 <= max(sizes) <= most


CONV_OF_HALVES = f"""%sum = conv(%x, %w) {CONV} : f32[1,4,7,6]
      %a = cast(%sum) {{to = f16}} : f16[1,4,7,6]"""

TURNED = """
      {op}
      %b = relu(%a) : f16[1,4,7,6]
      %c = cast(%b) {{to = f32}} : f32[1,4,7,6]
      %d = {reader}
      %y = cast(%d) {{to = f16}} : {result}"""


@pytest.mark.parametrize(
    ("reader", "result"),
    [
        ("transpose(%c) {perm = [0,1,3,2]} : f32[1,4,6,7]", "f16[1,4,6,7]"),
        ("reduce_max(%c) {axes = [2], keepdims = true} : f32[1,4,1,6]", "f16[1,4,1,6]"),
        ("add(%c, %r) : f32[3,4,7,6]", "f16[3,4,7,6]"),
    ],
)
def test_what_reads_a_reduction_behind_a_cast_is_elementwise_too(reader: str, result: str) -> None:
    """A cast to a wider type waits for its reader, and is then in one group with what reads it otherwise."""
    params = "%x: f16[1,3,7,6] {role = input}, %w: f16[4,3,3,3] {role = input}, %r: f32[3,1,1,1] {role = input}"
    body = TURNED.format(op=CONV_OF_HALVES, reader=reader, result=result)
    module = parse(function(body, result, params))
    PassManager.parse("fuse{target=none}").run(module)
    assert groups(module) == [["conv", "cast", "relu"], ["cast", reader.partition("(")[0], "cast"]]


@pytest.mark.parametrize(
    ("reader", "fused"), [("add(%c, %s) : f32[1,4,7,6]", True), ("add(%c, %r) : f32[3,4,7,6]", False)]
)
def test_costly_ops_behind_a_cast_are_not_computed_for_every_reader(reader: str, fused: bool) -> None:
    params = "%x: f16[1,4,7,6] {role = input}, %s: f32[1] {role = input}, %r: f32[3,1,1,1] {role = input}"
    body = TURNED.format(op="%a = exp(%x) : f16[1,4,7,6]", reader=reader, result="f16" + reader[reader.rindex("[") :])
    module = parse(function(body, "f16" + reader[reader.rindex("[") :], params))
    PassManager.parse("fuse{target=none}").run(module)
    apart = [["exp", "relu"], ["cast", "add", "cast"]]
    assert groups(module) == ([["exp", "relu", "cast", "add", "cast"]] if fused else apart)


@pytest.mark.parametrize(
    "ops, reads",
    [
        ("%y = neg(%x) : f32[4]", 1),
        ("%a = add(%x, %x) : f32[4]\n%y = mul(%a, %a) : f32[4]", 4),
        ("%a = gelu(%x) : f32[4]\n%y = exp(%a) : f32[4]", 24 * 24),
        ("%a = div(%x, %x) : f32[4]\n%y = neg(%a) : f32[4]", 8),
        ("%a = gelu(%x) : f32[4]\n%y = neg(%x) : f32[4]", 24),
        ("%y = pow(%x, %x) : f32[4]", 2),
        ("%a = cast(%x) {to = i32} : i32[4]\n%y = pow(%a, %a) : i32[4]", 2 * 193),
        ("%a = cast(%x) {to = bf16} : bf16[4]\n%y = neg(%a) : bf16[4]", 16),
    ],
)
def test_reads_of_a_kernel_with_every_binding_written_out(ops: str, reads: int) -> None:
    result = ops.rsplit(" : ", 1)[1]
    module = parse(f"func @main(%x: f32[4] {{role = input}}) -> {result} {{\n{ops}\nreturn %y\n}}")
    assert expansion(module.main.ops) == reads


@pytest.mark.parametrize("size, joined", [(1, True), (2, False)])
def test_how_much_more_a_group_may_keep_alive(size: int, joined: bool) -> None:
    """Beside the 256 bytes that it saves, 4 for a mean, but not 8."""
    module = parse(f"""
func @main(%x: f32[64,2] {{role = input}}) -> f32[32,2] {{
  %b = "make"(%x) : f32[4096]
  %a = "make"(%b) : f32[32,2]
  %m = "make"(%x) : f32[{size}]
  %o = sub(%a, %m) : f32[32,2]
  %k = "use"(%x) : f32[1]
  %s = exp(%o) : f32[32,2]
  return %s
}}
""")
    PassManager.parse("fuse{target=none}").run(module)
    assert (["sub", "exp"] in groups(module)) == joined
