# SPDX-License-Identifier: Apache-2.0
"""Loops over models: which blocks PyTorch allocates for each op, what it keeps for the backward pass, and when it lets go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from memc.estimation import estimate
from memc.estimation.eager import Machine, Storage
from memc.estimation.events import Events, Kind
from memc.estimation.frameworks import FRAMEWORKS
from memc.estimation.models import Loop, largest, model_recording
from memc.estimation.onnx_graph import read_onnx
from memc.estimation.readings import LoopShape
from memc.estimation.training import loop_events
from memc.estimation.workspaces import Convolution, Workspaces, table
from memc.ir.errors import InvalidError, UnsupportedError, UsageError

MIB = 2**20
BATCH = 4
BIG, SMALL = BATCH * 8 * 32 * 32 * 4, BATCH * 8 * 16 * 16 * 4
"""Bytes of the activations before and after the pool."""
VECTOR, LOGITS = BATCH * 8 * 4, BATCH * 10 * 4


def steps_of(path: Path, optimizer: str | None, steps: int = 2) -> tuple[Events, dict[tuple[str, int], list[str]]]:
    """What each phase and step does, in order: `+bytes` and `-bytes`."""
    graph = read_onnx(path, {"batch": BATCH})
    shape = LoopShape(optimizer, steps=steps)
    events = loop_events("small", graph, FRAMEWORKS["pytorch-2.11"], shape, Workspaces({}))[0]
    sizes = events.sizes()
    found: dict[tuple[str, int], list[str]] = {}
    phase = ("", -1)
    for at in range(len(events)):
        origin = events.origin(at)
        if origin is not None:
            phase = (origin.phase, origin.step)
        sign = "+" if events.kinds[at] == Kind.ALLOCATE else "-"
        found.setdefault(phase, []).append(f"{sign}{sizes[events.blocks[at]]}")
    return events, found


def test_a_model_is_moved_module_by_module(network: Path) -> None:
    """Weights and their running statistics, and a counter of 8 bytes for each batch normalization."""
    _, found = steps_of(network, "sgd")
    conv1, conv2 = 8 * 3 * 9 * 4, 8 * 8 * 9 * 4
    expected = [conv1, *[32] * 4, 8, conv2, *[32] * 4, 8, 10 * 8 * 4, 40]
    assert found["", -1] == [f"+{nbytes}" for nbytes in expected]


def test_forward_and_backward(network: Path) -> None:
    _, found = steps_of(network, "sgd")
    images, labels = BATCH * 3 * 32 * 32 * 4, BATCH * 8
    assert found["forward", 1] == [
        f"+{images}",
        f"+{labels}",
        *(f"+{BIG}", f"+{BIG}", "+32", "+32"),  # Convolution, and normalization with its statistics; ReLU in place.
        *(f"+{SMALL}", f"+{2 * SMALL}"),  # The pool, and indices of 8 bytes.
        *(f"+{SMALL}", f"+{SMALL}", "+32", "+32"),  # The sum goes into the normalized tensor.
        f"+{VECTOR}",
        f"+{LOGITS}",
        *(f"+{LOGITS}", "+4", "+4"),  # Log softmax, the weight and the loss.
        f"-{LOGITS}",
        "+4",  # The gradient of the loss.
    ]
    assert found["backward", 1][:7] == [
        *(f"+{LOGITS}", "-4", f"+{LOGITS}", f"-{LOGITS}", f"-{LOGITS}"),  # Of cross entropy, whose tensors go.
        *(f"+{VECTOR}", "+320"),  # Of the linear layer.
    ]


def test_the_first_matrix_products_take_workspaces_for_good(network: Path) -> None:
    events, found = steps_of(network, "sgd")
    assert found["forward", 0].count(f"+{32 * MIB}") == found["backward", 0].count(f"+{32 * MIB}") == 1
    assert found["forward", 0].count(f"+{MIB}") == 1
    assert not any(str(32 * MIB) in entry for entry in found["forward", 1] + found["backward", 1])


def test_what_is_live_between_steps(network: Path) -> None:
    """Weights, gradients, states and workspaces: every activation is gone."""
    weights = 8 * 3 * 9 * 4 + 8 * 8 * 9 * 4 + 8 * 32 + 2 * 8 + 360
    trained = weights - 4 * 32 - 2 * 8
    for optimizer, states in (
        ("sgd", 0),
        ("momentum", 1),
        ("adam", 2),
        ("adamw-fused", 2),
        ("adam-loop", 2),
        ("rmsprop", 1),
    ):
        events, _ = steps_of(network, optimizer)
        counters = 4 * 8 if optimizer == "adamw-fused" else 0
        assert events.live_after()[-1] == weights + trained * (1 + states) + counters + 65 * MIB, optimizer
    events, _ = steps_of(network, None)
    assert events.live_after()[-1] == weights + 33 * MIB


def test_optimizers_make_temporaries(network: Path) -> None:
    """Multi-tensor forms one of every parameter at once; loops two of one at a time."""
    trained = [8 * 3 * 9 * 4, 32, 32, 8 * 8 * 9 * 4, 32, 32, 320, 40]
    _, found = steps_of(network, "adam")
    batch = [f"-{nbytes}" for nbytes in (BATCH * 3 * 32 * 32 * 4, BATCH * 8, 4)]  # It ends with the step's function.
    made, freed = [f"+{nbytes}" for nbytes in trained], [f"-{nbytes}" for nbytes in reversed(trained)]
    assert found["optimizer", 1] == made + freed + batch
    _, found = steps_of(network, "adamw-fused")
    assert ("optimizer", 1) not in found
    _, found = steps_of(network, "adam-loop")
    assert found["optimizer", 1][:7] == ["+864", "+864", "-864", "+32", "+32", "-32", "-864"]
    _, found = steps_of(network, "adagrad")
    assert found["optimizer", 1][:16] == [f"+{nbytes}" for nbytes in trained * 2]


def test_inference_keeps_nothing(network: Path) -> None:
    """The input of a module is held by its caller until it returns."""
    _, found = steps_of(network, None)
    assert found["forward", 1] == [
        *(f"+{BATCH * 3 * 32 * 32 * 4}", f"+{BATCH * 8}"),
        *(f"+{BIG}", f"+{BIG}", f"-{BIG}"),
        *(f"+{SMALL}", f"+{2 * SMALL}", f"-{2 * SMALL}", f"-{BIG}"),
        *(f"+{SMALL}", f"+{SMALL}", f"-{SMALL}", f"-{SMALL}"),
        *(f"+{VECTOR}", f"-{SMALL}", f"+{LOGITS}", f"-{VECTOR}"),
        *(f"+{LOGITS}", "+4", "+4", f"-{LOGITS}", "-4", f"-{LOGITS}"),
        *(f"-{BATCH * 3 * 32 * 32 * 4}", f"-{BATCH * 8}", "-4"),
    ]


def test_a_relu_whose_operand_is_read_again_is_not_in_place(network: Path, tmp_path: Path) -> None:
    """The first convolution's result, normalized, is read by the ReLU and by another op."""
    model = onnx.load(network)
    extra = onnx.helper.make_node("GlobalAveragePool", ["b1"], ["other"], name="/other/GlobalAveragePool")
    model.graph.node.insert(3, extra)
    model.graph.output.append(onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "twice.onnx")
    _, plain = steps_of(network, "sgd")
    _, found = steps_of(tmp_path / "twice.onnx", "sgd")
    assert plain["forward", 1].count(f"+{BIG}") == 2 and found["forward", 1].count(f"+{BIG}") == 3


def machine() -> Machine:
    return Machine(lambda name: 100)


def test_a_second_gradient_is_added_in_place_if_nobody_else_holds_the_first() -> None:
    m = machine()
    for name in ("x", "y", "z"):
        m.bind(name, m.new(100, "activations"))
    m.record(["y"], ["x"], [], lambda gradient: [m.new(100, "temporaries")])
    m.record(["z"], ["x"], [], lambda gradient: [m.new(100, "temporaries")])
    m.record(["loss"], ["y", "z"], [], lambda gradient: [m.hold(gradient), m.hold(gradient)])
    m.run_backward("loss", frozenset())
    events = m.events.events()
    assert events.kinds.tolist()[3:] == [Kind.ALLOCATE] * 2 + [Kind.ALLOCATE, Kind.FREE, Kind.FREE]


def test_a_part_of_another_gradient_is_not_written_to() -> None:
    """As for the gradient of a concatenation's operand: the sum is a tensor of its own, of the operand's size."""
    m = machine()

    def views(_: Storage) -> list[Storage | None]:
        whole = m.new(300, "temporaries")
        parts: list[Storage | None] = [m.view(whole, None, 100), m.view(whole, None, 100)]
        m.release(whole)
        return parts

    m.record(["y"], ["x"], [], lambda gradient: [m.new(100, "temporaries")])
    m.record(["loss"], ["x", "y"], [], views)
    m.run_backward("loss", frozenset())
    events = m.events.events()
    assert events.nbytes[events.makes].tolist() == [4, 300, 100, 100]


def test_gradients_of_parameters_are_added_up_over_backward_passes() -> None:
    """Within one pass where a gradient is a view, as of a matrix turned, in a tensor of its own; over passes in place."""
    m = machine()

    def turned(_: Storage) -> list[Storage | None]:
        made = m.new(100, "gradients")
        found = m.view(made, None)
        m.release(made)
        return [found]

    for _ in range(2):
        m.record(["y"], ["w"], [], turned)
        m.record(["z"], ["w"], [], turned)
        m.record(["loss"], ["y", "z"], [], lambda gradient: [m.hold(gradient), m.hold(gradient)])
        m.run_backward("loss", frozenset({"w"}))
    events = m.events.events()
    assert events.nbytes[events.makes].tolist() == [4, 100, 100, 100] * 2
    assert events.live_after()[-1] == 100 and not m.gradients and list(m.kept) == ["w"]


def test_a_gradient_that_others_hold_is_copied() -> None:
    """As of two parameters that are added: both get the gradient of the sum."""
    m = machine()
    m.record(["loss"], ["a", "b"], [], lambda gradient: [m.hold(gradient), m.hold(gradient)])
    m.run_backward("loss", frozenset({"a", "b"}))
    events = m.events.events()
    assert events.nbytes[events.makes].tolist() == [4, 100, 100] and events.live_after()[-1] == 200


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        (lambda n: n <= 37, 37),
        (lambda n: n <= 8, 8),
        (lambda n: n < 8, None),
        (lambda n: True, 1024),
        (lambda n: n <= 37 or n in (39, 41), 41),
    ],
)
def test_the_largest_that_fits(fits: Callable[[int], bool], expected: int | None) -> None:
    assert largest(fits, 8, 1024) == expected


def convolution(batch: int, channels: int = 64, side: int = 56) -> Convolution:
    shape = (batch, channels, side, side)
    return Convolution(shape, (channels, channels, 3, 3), shape, (1, 1), (1, 1), (1, 1), 1, False)


def test_workspaces_of_cudnn() -> None:
    """What an H200 was seen to use: 56,623,104 bytes for the gradient of a convolution of 512 channels, and so on."""
    f32 = Workspaces(table("f32"))
    assert [f32.bytes(d, convolution(32, 512, 7)) for d in ("forward", "input", "weight")] == [
        0,
        0,
        56_623_104,
    ]
    assert [f32.bytes(d, convolution(32)) for d in ("input", "weight")] == [53_477_376, 116_195_328]
    assert f32.guessed == {}
    depthwise = Convolution((8, 32, 9, 9), (32, 1, 3, 3), (8, 32, 9, 9), (1, 1), (1, 1), (1, 1), 32, False)
    assert f32.bytes("weight", depthwise) == 0


def test_workspaces_that_the_table_lacks() -> None:
    f32 = Workspaces(table("f32"))
    between = f32.bytes("weight", convolution(40))
    assert 116_195_328 * 40 // 32 <= between <= 1.3 * 116_195_328 * 48 // 32
    assert list(f32.guessed.values()) == [False]
    similar = f32.bytes("weight", convolution(32, 60, 55))
    assert 0.8 * 116_195_328 < similar < 116_195_328 and sorted(f32.guessed.values()) == [False, True]
    assert Workspaces({}).bytes("weight", convolution(32)) == 0


def test_estimates_of_a_model(network: Path) -> None:
    found = estimate(network, train=True, optimizer="adam", dims={"batch": BATCH}, gpu="h200")
    assert (found.confidence, found.fits, found.largest_batch) == ("modelled", True, None)
    assert found.peak_op is not None and sum(found.breakdown.values()) == found.device_bytes
    assert found.breakdown["workspaces"] >= 65 * MIB and found.breakdown["weights"] == 3800
    run = estimate(network, dims={"batch": BATCH})
    assert run.allocated_bytes < found.allocated_bytes and "gradients" not in run.breakdown


def test_the_largest_batch(network: Path) -> None:
    memory = 804_061_184 + 200 * MIB
    found = estimate(network, train=True, find_batch=("batch", 1, 4096), memory=memory)
    assert found.fits and found.largest_batch is not None and 100 < found.largest_batch < 4096
    arguments = {"train": True, "memory": memory}
    assert estimate(network, dims={"batch": found.largest_batch}, **arguments).fits  # type: ignore[arg-type]
    assert not estimate(network, dims={"batch": found.largest_batch + 1}, **arguments).fits  # type: ignore[arg-type]
    none = estimate(network, train=True, find_batch=("batch", 4096, 8192), memory=memory)
    assert (none.fits, none.largest_batch, none.range_end) == (False, 0, False)
    end = estimate(network, train=True, find_batch=("batch", 1, found.largest_batch), memory=memory)
    assert (end.largest_batch, end.range_end, found.range_end) == (found.largest_batch, True, False)


def test_mistakes(network: Path, tmp_path: Path) -> None:
    dims = {"batch": 2}
    with pytest.raises(UsageError, match="`x` has an open dimension 'batch'; bind it with --dim batch=N"):
        estimate(network)
    with pytest.raises(UsageError, match="no open dimension 'bach'"):
        estimate(network, dims={"batch": 1, "bach": 2})
    with pytest.raises(UsageError, match="optimizer: expected train with it"):
        estimate(network, dims=dims, optimizer="adam")
    with pytest.raises(UsageError, match="optimizer: expected one of pytorch's, got 'adamm'; did you mean adam?"):
        estimate(network, dims=dims, train=True, optimizer="adamm")
    with pytest.raises(
        UsageError, match="framework: expected pytorch-2.11, pytorch-1.2, .* got 'pytorch-1.3'; did you mean"
    ):
        estimate(network, dims=dims, framework="pytorch-1.3")
    with pytest.raises(UsageError, match="precision: expected f32 with mxnet-1.5, got bf16"):
        estimate(network, dims=dims, framework="mxnet-1.5", precision="bf16")
    with pytest.raises(UsageError, match="precision: expected f32, bf16, amp-bf16, amp-f16, got 'f16'"):
        estimate(network, dims=dims, precision="f16")
    with pytest.raises(UsageError, match="accumulate: expected a whole number from 1 to 1024, got 0"):
        estimate(network, dims=dims, train=True, accumulate=0)
    with pytest.raises(UsageError, match="zero_grad: expected `first` or `end`, got 'last'"):
        estimate(network, dims=dims, zero_grad="last")
    with pytest.raises(UsageError, match="find_batch: expected memory or gpu with it"):
        estimate(network, find_batch=("batch", 1, 2))
    with pytest.raises(UsageError, match="expected a range within 1 to 1048576, got 8 to 4"):
        estimate(network, find_batch=("batch", 8, 4), memory=2**40)
    with pytest.raises(UsageError, match="`batch`: expected a whole number from 1 on, got 0"):
        Loop(dims={"batch": 0})
    with pytest.raises(UsageError, match="expected with an .onnx model alone"):
        estimate(tmp_path / "e.json", train=True)
    (tmp_path / "bad.onnx").write_bytes(b"x")
    with pytest.raises(InvalidError, match="expected an ONNX model"):
        estimate(tmp_path / "bad.onnx")
    model = onnx.load(network)
    model.graph.node[2].op_type = "Softsign"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(
        UnsupportedError, match=r"node `/relu/Relu` \(Softsign\): the model of pytorch-2.11 has no such op yet"
    ):
        estimate(tmp_path / "other.onnx", dims=dims)


def test_channels_last(network: Path) -> None:
    """Weights and inputs of four axes are copied into that layout; cuDNN takes other engines."""
    plain, other = (
        model_recording(network, Loop("sgd", {"batch": 4}, channels_last=each)).events for each in (False, True)
    )

    def loaded(events: Events, category: str, step: int) -> list[int]:
        found = [(events.origin(at), int(events.nbytes[at])) for at in range(len(events)) if events.nbytes[at]]
        return [nbytes for origin, nbytes in found if (origin.category, origin.step) == (category, step)]

    weights = [8 * 3 * 9 * 4, 8 * 8 * 9 * 4]
    assert loaded(other, "weights", -1) == loaded(plain, "weights", -1) + weights
    images = 4 * 3 * 32 * 32 * 4
    assert loaded(other, "inputs", 1) == [images, 4 * 8, images] and loaded(plain, "inputs", 1) == [images, 4 * 8]
    assert table("f32", "channels_last") != table("f32")


def test_engines_are_tried_once(network: Path) -> None:
    """In the first call of each convolution and direction, with the largest workspace of all."""
    convolution = Convolution((8, 3, 32, 32), (16, 3, 3, 3), (8, 16, 32, 32), (1, 1), (1, 1), (1, 1), 1, False)
    workspaces = Workspaces({convolution.shape: {8: (0, 100, 200)}}, most={convolution.shape: {8: (5000, 50, 7000)}})
    assert [workspaces.trial("forward", convolution) for _ in range(2)] == [5000, 0]
    assert workspaces.trial("input", convolution) == 100 and workspaces.trial("weight", convolution) == 7000
    assert Workspaces(workspaces.known).trial("forward", convolution) == 0
    events = model_recording(network, Loop("sgd", {"batch": 8}, tf32=False, cudnn_benchmark=True)).events
    tried = np.flatnonzero(events.kinds == Kind.EMPTY_CACHE)
    assert len(tried) and {events.origin(at - 2).step for at in tried} == {0}  # type: ignore[union-attr]
    for options in ({}, {"tf32": False, "channels_last": True}, {"precision": "bf16"}):
        with pytest.raises(UsageError, match="cudnn_benchmark: expected f32"):
            Loop("sgd", cudnn_benchmark=True, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="channels_last"):
        Loop("sgd", framework="mxnet-1.5", channels_last=True)
