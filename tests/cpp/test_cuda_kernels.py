# SPDX-License-Identifier: Apache-2.0
"""The CUDA library kernels against the ops' numpy references, over fake libraries that compute on the host."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, check, make_op

from memc.ir.op_queries import in_place_operands
from memc.ir.types import DType
from memc.passes.kernels.select_kernels import library_kernel

RNG = np.random.default_rng(5)


def some(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


PLAIN = {"transpose_a": False, "transpose_b": False}


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("lead_a", "lead_b"), [((), ()), ((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 3), (2, 3)), ((2, 3), (1, 1))]
)
def test_products(
    kernels: None, transpose_a: bool, transpose_b: bool, lead_a: tuple[int, ...], lead_b: tuple[int, ...]
) -> None:
    a = some(*lead_a, 5, 4) if transpose_a else some(*lead_a, 4, 5)
    b = some(*lead_b, 7, 5) if transpose_b else some(*lead_b, 5, 7)
    attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    product: Step = ("matmul", (0, 1), attrs)
    check([a, b], product, symbol="memc.cuda.matmul")
    check([a, b, some(7)], product, ("add", (2, 3), {}), symbol="memc.cuda.matmul")
    check([a, b, some(1, 7)], product, ("add", (3, 2), {}), ("relu", (4,), {}), symbol="memc.cuda.matmul")
    check([a, b], product, ("relu", (2,), {}), symbol="memc.cuda.matmul", workspace=256)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_products_that_add_to_a_matrix(kernels: None, lead: tuple[int, ...], in_place: bool) -> None:
    a, b, c, bias, scale = some(*lead, 4, 5), some(*lead, 5, 7), some(*lead, 4, 7), some(7), some()
    product: Step = ("matmul", (0, 1), {"transpose_a": False, "transpose_b": False})
    taken = 2 if in_place else None
    check([a, b, c], product, ("add", (3, 2), {}), symbol="memc.cuda.matmul", in_place=taken)
    steps = [product, ("mul", (5, 3), {}), ("add", (6, 4), {}), ("add", (2, 7), {}), ("relu", (8,), {})]
    check([a, b, c, scale, bias], *steps, symbol="memc.cuda.matmul", in_place=taken)
    check([a, b, scale], product, ("mul", (3, 2), {}), symbol="memc.cuda.matmul", workspace=256)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_sums_of_products(kernels: None, transposed: bool, in_place: bool) -> None:
    attrs = {"transpose_a": transposed, "transpose_b": False}
    pairs = [(some(*((k, 4) if transposed else (4, k))), some(k, 7)) for k in (5, 2, 3)]
    factors = [v for pair in pairs for v in pair]
    bias, scale, c = some(7), some(), some(4, 7)
    given = [*factors, bias, scale, c]
    steps: list[Step] = [("matmul", (0, 1), attrs)]
    for k in (1, 2):
        steps += [("matmul", (2 * k, 2 * k + 1), attrs), ("add", (7 + 2 * k, 8 + 2 * k), {})]
    check(
        factors, *[(name, [n - 3 if n > 8 else n for n in at], a) for name, at, a in steps], symbol="memc.cuda.matmul"
    )
    steps += [("mul", (13, 7), {}), ("add", (14, 6), {}), ("add", (8, 15), {}), ("relu", (16,), {})]
    check(given, *steps, symbol="memc.cuda.matmul", in_place=8 if in_place else None)


def test_sums_of_products_that_stay_apart() -> None:
    """Of sums that are rounded to halves, each but the last would be; and only products that read alike are added up."""
    plain, turned = PLAIN, {"transpose_a": True, "transpose_b": False}
    halves = [some(4, 4).astype(np.float16) for _ in range(4)]
    steps: list[Step] = [("matmul", (0, 1), plain), ("matmul", (2, 3), plain), ("add", (4, 5), {})]
    assert library_kernel(make_op(halves, steps), "cuda") is not None
    assert library_kernel(make_op(halves, [*steps, ("cast", (6,), {"to": DType.F16})]), "cuda") is None
    steps[1] = ("matmul", (2, 3), turned)
    assert library_kernel(make_op([some(4, 4) for _ in range(4)], steps), "cuda") is None


@pytest.mark.parametrize("split", [2, 4])
def test_products_that_are_split_along_their_depth(kernels: None, monkeypatch: pytest.MonkeyPatch, split: int) -> None:
    monkeypatch.setenv("FAKE_LT_SPLIT", str(split))
    monkeypatch.setenv(
        "FAKE_CUDA_FAILS", "cuLaunchKernelEx"
    )  # Nor can memc's own kernels, where another test added them.
    product: Step = ("matmul", (0, 1), PLAIN)
    check([some(3, 512), some(512, 5)], product, symbol="memc.cuda.matmul", workspace=64 * split)
    for workspace, depth in ((64 * split - 1, 512), (1024, 255)):  # Too little of either.
        with pytest.raises(ValueError, match="no algorithm"):
            check([some(2, depth), some(depth, split)], product, symbol="memc.cuda.matmul", workspace=workspace)


def test_a_product_may_take_what_one_with_another_workspace_has_chosen(
    kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it fits: an algorithm of 96 bytes, which the library does not propose for 100."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cuLaunchKernelEx")
    monkeypatch.setenv("FAKE_LT_LEAST", "96")
    product: Step = ("matmul", (0, 1), PLAIN)
    given = [some(7, 23), some(23, 19)]
    monkeypatch.setenv("FAKE_LT_PROPOSED", "96")
    check(given, product, symbol="memc.cuda.matmul", workspace=200)
    monkeypatch.setenv("FAKE_LT_PROPOSED", "64")
    check(given, product, symbol="memc.cuda.matmul", workspace=100)
    for other, workspace in ((given, 95), ([some(7, 23), some(23, 18)], 100)):  # Too little, and another product.
        with pytest.raises(ValueError, match="no algorithm"):
            check(other, product, symbol="memc.cuda.matmul", workspace=workspace)


def test_a_product_that_updates_a_state() -> None:
    arrays = [some(4, 5), some(5, 7), some(), some(4, 7)]
    product: Step = ("matmul", (0, 1), {"transpose_a": False, "transpose_b": False})
    step = make_op(arrays, [product, ("mul", (4, 2), {}), ("add", (3, 5), {}), ("assign", (3, 6), {})])
    kernel = library_kernel(step, "cuda")
    assert kernel is not None and list(kernel.scalars(step)) == [4, -1, 0, 0, 0, 3, 2, 0]
    other = make_op(arrays, [product, ("mul", (4, 2), {}), ("add", (3, 5), {}), ("assign", (6, 3), {})])
    assert library_kernel(other, "cuda") is None


def test_a_matrix_that_a_product_reads_is_not_taken_over() -> None:
    step = make_op(
        [some(5, 5), some(5, 5)],
        [("matmul", (0, 1), {"transpose_a": False, "transpose_b": False}), ("add", (2, 1), {})],
    )
    kernel = library_kernel(step, "cuda")
    assert kernel is not None
    step.plan = replace(step.plan, library_kernel=kernel.symbol)
    assert not in_place_operands(step)


def test_products_that_stay_generated() -> None:
    plain = {"transpose_a": False, "transpose_b": False}
    for a, b in (
        (some(2, 3, 4, 5), some(3, 5, 6)),  # Broadcast over part of the batch.
        (some(4, 5).astype(np.float64), some(5, 6).astype(np.float64)),
        (some(0, 5), some(5, 6)),
    ):
        assert library_kernel(make_op([a, b], [("matmul", (0, 1), plain)]), "cuda") is None
    a, b = some(4, 5), some(5, 6)
    column: list[Step] = [("matmul", (0, 1), plain), ("add", (2, 3), {})]
    assert library_kernel(make_op([a, b, some(4, 1)], column), "cuda") is None
    late: list[Step] = [("matmul", (0, 1), plain), ("add", (4, 2), {}), ("mul", (5, 3), {})]
    assert library_kernel(make_op([a, b, some(4, 6), some()], late), "cuda") is None
    assert library_kernel(make_op([a, b], [("matmul", (0, 1), plain), ("exp", (2,), {})]), "cuda") is None


CONVOLUTIONS = [
    # x, w, strides, pads, dilations, group
    ((2, 3, 8, 9), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 4, 9, 8), (6, 2, 3, 2), (2, 1), (1, 0, 1, 0), (2, 1), 2),
    ((2, 3, 8, 8), (4, 3, 3, 3), (2, 2), (1, 1, 0, 0), (1, 1), 1),  # No window reaches the last pad.
    ((1, 3, 12), (5, 3, 4), (3,), (2, 2), (1,), 1),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), (1, 2, 1), (0, 1, 0, 0, 1, 0), (1, 1, 1), 1),
    ((2, 3, 4, 5), (6, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),  # A product for each image.
    ((1, 3, 4, 5), (6, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


def attributes(case: tuple[Any, ...]) -> dict[str, Any]:
    return {"strides": case[2], "pads": case[3], "dilations": case[4], "group": case[5]}


@pytest.mark.parametrize("workspace", [0, 64])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(kernels: None, case: tuple[Any, ...], workspace: int) -> None:
    x, w = some(*case[0]), some(*case[1])
    conv: Step = ("conv", (0, 1), attributes(case))
    check([x, w], conv, symbol="memc.cuda.conv", workspace=workspace)
    bias = some(w.shape[0])
    with_bias: Step = ("conv", (0, 1, 2), attributes(case))
    check([x, w, bias], with_bias, symbol="memc.cuda.conv", workspace=workspace)
    check([x, w, bias], with_bias, ("relu", (3,), {}), symbol="memc.cuda.conv", workspace=workspace)
    result = make_op([x, w], [conv]).result.type.shape
    added: list[Step] = [with_bias, ("add", (3, 4), {}), ("relu", (5,), {})]
    check([x, w, bias, some(*result)], *added, symbol="memc.cuda.conv", workspace=workspace)
    check([x, w, bias, some(*result)], *added, symbol="memc.cuda.conv", workspace=workspace, in_place=3)


@pytest.mark.parametrize("workspace", [0, 64])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_gradients_of_convolutions(kernels: None, case: tuple[Any, ...], workspace: int) -> None:
    x, w = some(*case[0]), some(*case[1])
    attrs = attributes(case)
    y = some(*make_op([x, w], [("conv", (0, 1), attrs)]).result.type.shape)
    for_weight = {**attrs, "kernel": w.shape[2:]}
    check([x, y], ("conv_grad_weight", (0, 1), for_weight), symbol="memc.cuda.conv_grad_weight", workspace=workspace)
    rank = len(attrs["strides"])
    free = make_op([y, w], [("conv_transpose", (0, 1), {**attrs, "output_padding": (0,) * rank})]).result.type.shape
    padding = tuple(n - m for n, m in zip(x.shape[2:], free[2:]))
    transposed = {**attrs, "output_padding": padding}
    symbol = "memc.cuda.conv_transpose"
    check([y, w], ("conv_transpose", (0, 1), transposed), symbol=symbol, workspace=workspace)
    bias = some(x.shape[1])
    check([y, w, bias], ("conv_transpose", (0, 1, 2), transposed), symbol=symbol, workspace=workspace)


@pytest.mark.parametrize("images", [1, 3])
def test_convolutions_as_products(kernels: None, monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionForward")
    case = ((images, 4, 3, 5), (6, 4, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    x, w, bias, residual = some(*case[0]), some(*case[1]), some(6), some(images, 6, 3, 5)
    check([x, w], ("conv", (0, 1), attributes(case)), symbol="memc.cuda.conv")
    steps: list[Step] = [("conv", (0, 1, 2), attributes(case)), ("add", (3, 4), {}), ("relu", (5,), {})]
    check([x, w, bias, residual], *steps, symbol="memc.cuda.conv", workspace=64)
    check([x, w, bias, residual], *steps, symbol="memc.cuda.conv", workspace=64, in_place=3)
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionBackwardData")
    back: Step = ("conv_transpose", (0, 1), {**attributes(case), "output_padding": (0, 0)})
    check([residual, w], back, symbol="memc.cuda.conv_transpose")


@pytest.mark.parametrize("images", [1, 3, 4, 6])
@pytest.mark.parametrize("workspace", [0, 256, 4096])
def test_gradients_of_weights_as_products(
    kernels: None, monkeypatch: pytest.MonkeyPatch, images: int, workspace: int
) -> None:
    """With so little workspace, images are added up one after the other; with more, several sums are."""
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionBackwardFilter")
    x, y = some(images, 5, 3, 4), some(images, 6, 3, 4)
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "kernel": (1, 1)}
    check([x, y], ("conv_grad_weight", (0, 1), attrs), symbol="memc.cuda.conv_grad_weight", workspace=workspace)


@pytest.mark.parametrize("images", [2, 4, 6])
@pytest.mark.parametrize("name", ["conv", "conv_grad_weight", "conv_transpose"])
def test_images_are_cut_into_parts_that_fit(
    kernels: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, images: int
) -> None:
    monkeypatch.setenv("FAKE_CUDNN_IMAGE_BYTES", "64")
    x, y, w = some(images, 3, 5, 6), some(images, 4, 5, 6), some(4, 3, 3, 3)
    attrs: dict[str, Any] = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 1}
    own: dict[str, dict[str, Any]] = {
        "conv": {},
        "conv_grad_weight": {"kernel": (3, 3)},
        "conv_transpose": {"output_padding": (0, 0)},
    }
    given = {"conv": [x, w], "conv_grad_weight": [x, y], "conv_transpose": [y, w]}[name]
    check(given, (name, (0, 1), {**attrs, **own[name]}), symbol=f"memc.cuda.{name}", workspace=64 * images // 2)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("in_place", [None, 3])
@pytest.mark.parametrize("images", [2, 4, 6])
def test_parts_of_images_are_finished_in_the_same_call(
    kernels: None, monkeypatch: pytest.MonkeyPatch, images: int, in_place: int | None
) -> None:
    monkeypatch.setenv("FAKE_CUDNN_IMAGE_BYTES", "64")
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cudnnConvolutionForward")
    case = ((images, 3, 5, 6), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    x, w, bias, residual = some(*case[0]), some(*case[1]), some(4), some(images, 4, 5, 6)
    steps: list[Step] = [("conv", (0, 1, 2), attributes(case)), ("add", (3, 4), {}), ("relu", (5,), {})]
    check([x, w, bias, residual], *steps, symbol="memc.cuda.conv", workspace=64 * images // 2, in_place=in_place)


def test_precision_is_that_of_the_attribute(kernels: None, fake: Path) -> None:
    """Where TF32 is allowed, convolutions try strict f32 too."""
    library = ctypes.CDLL(str(fake))
    attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 1, "kernel": (3, 3)}
    cases: list[tuple[list[Array], Step, str, dict[str | None, int]]] = [
        ([some(3, 4), some(4, 5)], ("matmul", (0, 1), PLAIN), "used_compute", {None: 68, "tf32": 77}),
        (
            [some(2, 3, 5, 7), some(2, 4, 5, 7)],
            ("conv_grad_weight", (0, 1), attrs),
            "used_math",
            {None: 0b1000, "tf32": 0b1001},
        ),
    ]
    for arrays, step, counter, values in cases:
        for precision, value in values.items():
            op = make_op(arrays, [step])
            if precision is not None:
                op.plan = replace(op.plan, precision=precision)
            kernel = library_kernel(op, "cuda")
            assert kernel is not None
            ctypes.c_int.in_dll(library, counter).value = 0
            result = np.zeros(op.result.type.shape, np.float32)
            tvm_ffi.get_global_func(kernel.symbol)(*map(tvm_ffi.from_dlpack, [*arrays, result]), *kernel.scalars(op))
            assert ctypes.c_int.in_dll(library, counter).value == value


@pytest.mark.parametrize("workspace", [0, 64])
def test_a_call_takes_what_algorithm_there_is(
    kernels: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], workspace: int
) -> None:
    monkeypatch.setenv("FAKE_CUDNN_STEADY_BYTES", "64")
    case = ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    x, y = some(*case[0]), some(2, 4, 7, 8)
    step: Step = ("conv_grad_weight", (0, 1), {**attributes(case), "kernel": (3, 3)})
    check([x, y], step, symbol="memc.cuda.conv_grad_weight", workspace=workspace)
    said = "deterministic algorithms need 64 bytes of workspace, planned are 0" in capfd.readouterr().err
    assert said == (workspace < 64)


def test_gradients_of_weights_have_room_for_a_copy_of_them() -> None:
    x, y = some(2, 3, 7, 8), some(2, 4, 7, 8)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "kernel": (3, 3)}
    op = make_op([x, y], [("conv_grad_weight", (0, 1), attrs)])
    kernel = library_kernel(op, "cuda")
    assert kernel is not None and kernel.workspace is not None
    least, most = kernel.workspace(op)
    assert op.result.type.nbytes < least <= most


@pytest.mark.parametrize(("images", "of_a_part"), [(32, 1), (64, 2), (128, 4)])
def test_gradients_of_weights_have_room_for_a_part_of_the_images(images: int, of_a_part: int) -> None:
    """At most 32 parts are added up one after another."""
    x, y = np.zeros((images, 3, 7, 8), np.float32), np.zeros((images, 4, 7, 8), np.float32)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "kernel": (3, 3)}
    kernel = library_kernel(op := make_op([x, y], [("conv_grad_weight", (0, 1), attrs)]), "cuda")
    assert kernel is not None and kernel.workspace is not None
    rest = kernel.workspace(op)[0] - of_a_part * 7 * 7 * 8 * 4
    assert op.result.type.nbytes < rest < 2 * op.result.type.nbytes + (1 << 15)


def test_a_gradient_by_products_takes_no_algorithm_of_changing_sums(
    kernels: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where no deterministic algorithm fits the workspace: no warning, as products need none."""
    monkeypatch.setenv("FAKE_CUDNN_STEADY_BYTES", "4096")
    x, y = some(4, 6, 5, 5), some(4, 7, 5, 5)
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "kernel": (1, 1)}
    check([x, y], ("conv_grad_weight", (0, 1), attrs), symbol="memc.cuda.conv_grad_weight", workspace=0)
    assert "differs in its last bits" not in capfd.readouterr().err


def test_convolutions_that_stay_generated() -> None:
    def kernel(x: Array, w: Array, **changes: Any) -> Any:
        attrs: dict[str, Any] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, **changes}
        return library_kernel(make_op([x, w], [("conv", (0, 1), attrs)]), "cuda")

    x, w = some(1, 4, 8, 8), some(4, 4, 3, 3)
    assert kernel(x, w) is not None
    assert kernel(x, w, pads=(0, 0, 1, 1)) is None  # More windows at the end than at the beginning.
    assert kernel(x, w, pads=(1, 1, 0, 0)) is None
    assert kernel(x, some(4, 1, 3, 3), group=4) is None  # One input channel per group.
    attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (2, 2), "group": 4, "kernel": (3, 3)}
    g = some(1, 4, 6, 6)
    assert library_kernel(make_op([x, g], [("conv_grad_weight", (0, 1), attrs)]), "cuda") is None
    assert kernel(x.astype(np.float64), w.astype(np.float64)) is None
