# SPDX-License-Identifier: Apache-2.0
"""Which of memc's own CUDA kernels an executable holds: those that its calls may take, and no others."""

from __future__ import annotations

import pytest

from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify
from memc.runtime.codegen.cuda_kernels import (
    BOXES,
    DEPTHWISE,
    EVERY,
    FACTORS,
    LINES,
    ROUNDED_FACTORS,
    SCATTERS,
    SUMS,
    VOLUMES,
    sources_of,
)

WINDOW = "strides = [1,1], pads = [1,1,1,1], dilations = [1,1]"
WINDOW3 = "strides = [1,1,1], pads = [1,1,1,1,1,1], dilations = [1,1,1]"
IMAGE, VOLUME = "f32[1,4,9,9]", "f32[1,4,9,9,9]"


def conv(kind: str, groups: int, volume: bool = False, plan: str = "", dtype: str = "f32") -> str:
    """A convolution, or its gradient for the weight, by a library call; and the types of its operands."""
    x = (VOLUME if volume else IMAGE).replace("f32", dtype)
    w = f"{dtype}[4,{4 // groups},{'3,' * volume}3,3]"
    window = f"{WINDOW3 if volume else WINDOW}, group = {groups}"
    symbol = f'plan {{library_kernel = "memc.cuda.{kind}"{plan}}}'
    if kind == "conv":
        return f"{x}|{w}|%y = conv(%a, %b) {{{window}}} {symbol} : {x}"
    return f"{x}|{x}|%y = conv_grad_weight(%a, %b) {{{window}, kernel = [{'3, ' * volume}3, 3]}} {symbol} : {w}"


def sources(case: str) -> tuple[str, ...]:
    first, second, op = case.split("|")
    result = op.rsplit(" : ", 1)[1]
    module = parse(
        f"func @main(%a: {first} {{role = input}}, %b: {second} {{role = input}}) -> {result} {{\n{op}\nreturn %y\n}}"
    )
    verify(module)
    return sources_of(module.main)


def plain(op: str, symbol: str, types: str, attrs: str, result: str) -> str:
    return f'{types}|%y = {op} {{{attrs}}} plan {{library_kernel = "memc.cuda.{symbol}"}} : {result}'


@pytest.mark.parametrize(
    "case, expected",
    [
        (conv("conv", 1), FACTORS),
        (conv("conv", 4), FACTORS),  # Depthwise, but no gradient.
        (conv("conv", 1, volume=True), FACTORS + VOLUMES),
        (conv("conv", 1, plan=', precision = "tf32"'), FACTORS + ROUNDED_FACTORS),
        (conv("conv", 1, volume=True, plan=', precision = "tf32"'), FACTORS + ROUNDED_FACTORS),
        (conv("conv", 1, volume=True, dtype="f64"), ()),
        (conv("conv_grad_weight", 1), SUMS),
        (conv("conv_grad_weight", 4), DEPTHWISE),
        (conv("conv_grad_weight", 4, dtype="f64"), ()),
        (conv("conv_grad_weight", 1, volume=True), SUMS + VOLUMES),
        (conv("conv_grad_weight", 1, volume=True, plan=', precision = "tf32"'), ROUNDED_FACTORS + SUMS),
    ],
)
def test_sources_of_convolutions(case: str, expected: tuple[str, ...]) -> None:
    assert sources(case) == expected


@pytest.mark.parametrize(
    "case, expected",
    [
        (
            plain(
                "matmul(%a, %b)", "matmul", "f32[4,4]|f32[4,4]", "transpose_a = false, transpose_b = false", "f32[4,4]"
            ),
            FACTORS,
        ),
        (
            plain(
                "matmul(%a, %b)", "matmul", "f64[4,4]|f64[4,4]", "transpose_a = false, transpose_b = false", "f64[4,4]"
            ),
            (),
        ),
        (
            plain("cumsum(%a)", "cumsum", "i64[4]|f32[4]", "axis = 0, exclusive = false, reverse = false", "i64[4]"),
            LINES,
        ),
        (plain("gather_grad(%a, %b)", "gather_grad", "i64[4]|f32[4,8]", "axis = 0, extent = 6", "f32[6,8]"), SCATTERS),
        ("f32[4]|f32[4]|%y = add(%a, %b) : f32[4]", ()),
    ],
)
def test_sources_of_other_calls(case: str, expected: tuple[str, ...]) -> None:
    assert sources(case) == expected


@pytest.mark.parametrize(
    ("types", "operands", "plan", "expected"),
    [
        ("bf16[2,5,64]", "", "", "Bf16, bf16, 64"),
        ("f32[2,5,80]", "", "", "F32, f32, 96"),
        ("f32[2,5,128]", "", ', precision = "tf32"', "Tf32, tf32, 128"),
        ("f16[2,5,129]", ", %m", "", "Masked<F16>, masked_f16, 256"),
    ],
)
def test_sources_of_attention_in_training(types: str, operands: str, plan: str, expected: str) -> None:
    """Of one element type and width, with or without a mask: there are many."""
    given = f'plan {{library_kernel = "memc.cuda.attention_training"{plan}}}'
    text = f"""func @main(%q: {types} {{role = input}}, %m: f32[5,5] {{role = input}}) -> {types} {{
      %y, %rows = attention_training(%q, %q, %q{operands}) {{axis = 1, scale = 0.5}} {given} : {types}, f32[2,5]
      return %y
    }}"""
    module = parse(text)
    verify(module)
    assert sources_of(module.main) == (f"attention_training.cuh ATTENTION_TRAINING({expected})",)


def test_each_source_is_named_once() -> None:
    assert len(set(EVERY)) == len(EVERY)
    text = """
func @main(%i: i64[4] {role = input}, %g: i32[4] {role = input}) -> (i64[4], i32[6]) {
  %a = cumsum(%i) {axis = 0, exclusive = false, reverse = false} plan {library_kernel = "memc.cuda.cumsum"} : i64[4]
  %b = gather_grad(%i, %g) {axis = 0, extent = 6} plan {library_kernel = "memc.cuda.gather_grad"} : i32[6]
  return %a, %b
}
"""
    assert sources_of(parse(text).main) == ("scans.cu", "sorts.cu", "scatters.cu")
    assert {*LINES, *SCATTERS, *BOXES} <= set(EVERY)
