# SPDX-License-Identifier: Apache-2.0
"""Runs an ONNX graph through PyTorch's ops, one by one as eager mode does: for speed, and with gradients as the reference for
training steps.

Independent of memc: it shares no code with it, and reads the model as a training one on its own.

- Every stored float tensor is a leaf with a gradient. Exporters store tensors that are equal by value once, and give
  each its own name by an Identity node: such a node's result is a leaf of its own.
- Batch normalization takes the statistics of the batch, and moves the running ones, which are buffers; not with
  `training=False`.
- Dropout is the identity.
- Shapes and indices are int64 tensors, so that nothing is bound to one batch.

Opset 13 to 18, the operators of the exports in `benchmarks/models.py`; an unknown one raises KeyError with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import onnx
import torch
import torch.nn.functional as F
from onnx import NodeProto, numpy_helper

Tensor = torch.Tensor
Inputs = Sequence[Optional[Tensor]]


@dataclass
class Network:
    """A model as parameters, buffers and nodes. All floats have one type, `dtype`."""

    graph: onnx.GraphProto
    dtype: torch.dtype
    training: bool = True
    parameters: dict[str, Tensor] = field(default_factory=dict)
    """Leaves with gradients, by name."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Running statistics, by name."""
    constants: dict[str, Tensor] = field(default_factory=dict)
    """Stored integers."""

    @classmethod
    def load(cls, path: Path, dtype: torch.dtype, training: bool = True) -> Network:
        """The model's file, with its external data."""
        graph = onnx.load(str(path)).graph
        network = cls(graph, dtype, training)
        stored = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Identity" and node.input[0] in stored:
                stored[node.output[0]] = stored[node.input[0]]
        statistics = {n for node in graph.node if node.op_type == "BatchNormalization" for n in node.input[3:5]}
        read = {n for node in graph.node if node.op_type != "Identity" for n in node.input}
        for name, tensor in stored.items():
            if not tensor.is_floating_point():
                network.constants[name] = tensor
            elif name in statistics:
                network.buffers[name] = tensor.to(dtype, copy=True)
            elif name in read:
                network.parameters[name] = tensor.to(dtype, copy=True).requires_grad_()
        return network

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The first output. Floats among `inputs` are converted to the network's type."""
        values = {**self.constants, **self.parameters, **self.buffers}
        values.update({n: v.to(self.dtype) if v.is_floating_point() else v for n, v in inputs.items()})
        for node in self.graph.node:
            if node.op_type == "Identity" and node.output[0] in values:
                continue
            made = OPS[node.op_type](self, [values[n] if n else None for n in node.input], _Attrs(node))
            results = made if isinstance(made, tuple) else (made,)
            values.update({name: v for name, v in zip(node.output, results) if name})
        return values[self.graph.output[0].name]


class _Attrs:
    """A node's attributes."""

    def __init__(self, node: NodeProto) -> None:
        self.found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    def __call__(self, name: str, default: Any = None) -> Any:
        return self.found.get(name, default)


Op = Callable[[Network, Any, _Attrs], Any]


def _ints(tensor: Tensor) -> list[int]:
    return [int(n) for n in tensor.reshape(-1)]


def _pads(x: Tensor, attrs: _Attrs, value: float = 0.0) -> tuple[Tensor, list[int]]:
    """x and the symmetric pads that are left to do; others are done here."""
    spatial = x.dim() - 2
    pads = list(attrs("pads", [0] * 2 * spatial))
    low, high = pads[:spatial], pads[spatial:]
    if attrs("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise NotImplementedError(f"auto_pad {attrs('auto_pad')}")
    if low == high:
        return x, low
    sides = [n for pair in reversed(list(zip(low, high))) for n in pair]
    return F.pad(x, sides, value=value), [0] * spatial


def _conv(net: Network, i: Inputs, attrs: _Attrs) -> Tensor:
    x, pads = _pads(i[0], attrs)
    n = x.dim() - 2
    run = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    bias = i[2] if len(i) > 2 else None
    return run(x, i[1], bias, attrs("strides", 1), pads, attrs("dilations", 1), attrs("group", 1))


def _conv_transpose(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    n = i[0].dim() - 2
    pads = list(attrs("pads", [0] * 2 * n))
    if pads[:n] != pads[n:]:
        raise NotImplementedError(f"ConvTranspose with pads {pads}")
    run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
    more = attrs("output_padding", 0)
    bias = i[2] if len(i) > 2 else None
    return run(i[0], i[1], bias, attrs("strides", 1), pads[:n], more, attrs("group", 1), attrs("dilations", 1))


def _max_pool(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    x, pads = _pads(i[0], attrs, -torch.inf)
    ceil = bool(attrs("ceil_mode", 0))
    return F.max_pool2d(x, attrs("kernel_shape"), attrs("strides", 1), pads, attrs("dilations", 1), ceil)


def _average_pool(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    n = i[0].dim() - 2
    pads = list(attrs("pads", [0] * 2 * n))
    if pads[:n] != pads[n:]:
        raise NotImplementedError(f"AveragePool with pads {pads}")
    ceil, counted = bool(attrs("ceil_mode", 0)), bool(attrs("count_include_pad", 0))
    return F.avg_pool2d(i[0], attrs("kernel_shape"), attrs("strides", 1), pads[:n], ceil, counted)


def _batch_norm(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    """ONNX keeps `momentum` of the old statistics, PyTorch takes it of the new ones, and the variance unbiased."""
    x, scale, bias, mean, variance = i
    momentum = 1 - attrs("momentum", 0.9)
    return F.batch_norm(x, mean, variance, scale, bias, net.training, momentum, attrs("epsilon", 1e-5))


def _layer_norm(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    axis = attrs("axis", -1) % i[0].dim()
    return F.layer_norm(i[0], i[0].shape[axis:], i[1], i[2] if len(i) > 2 else None, attrs("epsilon", 1e-5))


def _gemm(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    a = i[0].T if attrs("transA", 0) else i[0]
    b = i[1].T if attrs("transB", 0) else i[1]
    y = attrs("alpha", 1.0) * (a @ b)
    return y + attrs("beta", 1.0) * i[2] if len(i) > 2 else y


def _lstm(net: Network, i: Any, attrs: _Attrs) -> tuple[Tensor, Tensor, Tensor]:
    """One direction of PyTorch's own LSTM. ONNX orders the gates i, o, f, c, PyTorch i, f, c, o."""
    if attrs("direction", b"forward") != b"forward" or (len(i) > 4 and i[4] is not None) or attrs("layout", 0):
        raise NotImplementedError("LSTM backward, with lengths or batch first")
    x, weight, recurrent, bias = i[:4]
    size = attrs("hidden_size")

    def gates(w: Tensor) -> Tensor:
        parts = w.split(size)
        return torch.cat([parts[0], parts[2], parts[3], parts[1]])

    zeros = x.new_zeros(1, x.shape[1], size)
    h, c = (i[n] if len(i) > n and i[n] is not None else zeros for n in (5, 6))
    params = [gates(weight[0]), gates(recurrent[0]), gates(bias[0, : 4 * size]), gates(bias[0, 4 * size :])]
    y, h, c = torch.lstm(x, (h, c), params, True, 1, 0.0, True, False, False)
    return y.unsqueeze(1), h, c


def _slice(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    x = i[0]
    starts, stops = _ints(i[1]), _ints(i[2])
    axes = _ints(i[3]) if len(i) > 3 and i[3] is not None else list(range(len(starts)))
    steps = _ints(i[4]) if len(i) > 4 else [1] * len(starts)
    for start, stop, axis, step in zip(starts, stops, axes, steps):
        chosen = range(x.shape[axis])[slice(start, stop if step > 0 or stop >= -x.shape[axis] else None, step)]
        if step == 1:
            x = x.narrow(axis, chosen.start, len(chosen))
        else:
            x = x.index_select(axis, torch.tensor(list(chosen)))
    return x


def _gather(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    axis = attrs("axis", 0) % i[0].dim()
    index = torch.where(i[1] < 0, i[1] + i[0].shape[axis], i[1])
    taken = i[0].index_select(axis, index.reshape(-1))
    return taken.reshape((*i[0].shape[:axis], *index.shape, *i[0].shape[axis + 1 :]))


def _reshape(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    wanted = _ints(i[1])
    if not attrs("allowzero", 0):
        wanted = [i[0].shape[d] if n == 0 else n for d, n in enumerate(wanted)]
    return i[0].reshape(wanted)


def _unsqueeze(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    axes = _ints(i[1])
    rank = i[0].dim() + len(axes)
    x = i[0]
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    if len(i) < 2:
        return i[0].squeeze()
    return i[0].squeeze(tuple(_ints(i[1])))


def _constant(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    tensor = torch.from_numpy(numpy_helper.to_array(attrs("value")).copy())
    return tensor.to(net.dtype) if tensor.is_floating_point() else tensor


def _constant_of_shape(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    value = attrs("value")
    fill = torch.zeros(1) if value is None else torch.from_numpy(numpy_helper.to_array(value).copy())
    dtype = net.dtype if fill.is_floating_point() else fill.dtype
    return torch.full(_ints(i[0]), fill.item(), dtype=dtype)


def _cast(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    dtype = {1: net.dtype, 6: torch.int32, 7: torch.int64, 9: torch.bool, 11: net.dtype}[attrs("to")]
    return i[0].to(dtype)


def _div(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    return torch.div(i[0], i[1], rounding_mode=None if i[0].is_floating_point() else "trunc")


def _flatten(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    axis = attrs("axis", 1)
    return i[0].reshape(i[0].shape[:axis].numel(), -1)


def _reduce_mean(net: Network, i: Any, attrs: _Attrs) -> Tensor:
    given = _ints(i[1]) if len(i) > 1 and i[1] is not None else attrs("axes")  # An input from opset 18 on.
    axes = list(range(i[0].dim())) if given is None else given
    return i[0].mean(axes, keepdim=bool(attrs("keepdims", 1)))


OPS: dict[str, Op] = {
    "Add": lambda net, i, a: i[0] + i[1],
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": lambda net, i, a: torch.clamp(i[0], i[1], i[2]),
    "Concat": lambda net, i, a: torch.cat(i, a("axis")),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _div,
    "Dropout": lambda net, i, a: i[0],
    "Equal": lambda net, i, a: i[0] == i[1],
    "Erf": lambda net, i, a: torch.erf(i[0]),
    "Expand": lambda net, i, a: i[0].expand(torch.broadcast_shapes(i[0].shape, _ints(i[1]))),
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": lambda net, i, a: torch.gather(i[0], a("axis", 0), i[1]),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda net, i, a: i[0].mean(tuple(range(2, i[0].dim())), keepdim=True),
    "GreaterOrEqual": lambda net, i, a: i[0] >= i[1],
    "Identity": lambda net, i, a: i[0],
    "LSTM": _lstm,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda net, i, a: i[0] @ i[1],
    "MaxPool": _max_pool,
    "Mod": lambda net, i, a: torch.remainder(i[0], i[1]),
    "Mul": lambda net, i, a: i[0] * i[1],
    "Range": lambda net, i, a: torch.arange(i[0].item(), i[1].item(), i[2].item(), dtype=i[0].dtype),
    "ReduceMean": _reduce_mean,
    "Relu": lambda net, i, a: torch.relu(i[0]),
    "Reshape": _reshape,
    "Shape": lambda net, i, a: torch.tensor(i[0].shape, dtype=torch.int64),
    "Sigmoid": lambda net, i, a: torch.sigmoid(i[0]),
    "Slice": _slice,
    "Softmax": lambda net, i, a: torch.softmax(i[0], a("axis", -1)),
    "Sqrt": lambda net, i, a: torch.sqrt(i[0]),
    "Squeeze": _squeeze,
    "Tanh": lambda net, i, a: torch.tanh(i[0]),
    "Transpose": lambda net, i, a: i[0].permute(a("perm") or tuple(reversed(range(i[0].dim())))),
    "Unsqueeze": _unsqueeze,
    "Where": lambda net, i, a: torch.where(i[0], i[1], i[2]),
}
"""By operator: the network, the inputs (None where absent) and attributes, to a result or a tuple of them."""
