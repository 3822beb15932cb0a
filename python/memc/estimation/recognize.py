# SPDX-License-Identifier: Apache-2.0
"""PyTorch's ops in an ONNX model, where its exporters wrote one op as several nodes.

The newer exporter says which op of PyTorch's each node is of; for the older one, the nodes' pattern tells. Ops that ONNX lacks, or that
are more than ONNX's of the name, have names of their own: `Linear`, `Attention`, `Gelu`, `Silu`, `Embedding`, `Select`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .exporter_calls import from_calls
from .module_order import registered
from .onnx_graph import Node, OnnxGraph
from .recognize_parts import with_splits


def eager_graph(graph: OnnxGraph, modules: bool = True) -> OnnxGraph:
    """The model in PyTorch's ops; layers of a recurrent module as one, if `modules`."""
    graph = from_calls(graph)
    graph = _without_dropouts(graph)
    for rewrite in (with_splits, _silu, _gelu, _rsqrt, _linear, _attention, _gathers, _packed, _recurrent):
        graph = rewrite(graph)
    graph = _stacked(graph) if modules else graph
    graph = _without_shape_masks(graph)
    return replace(graph, parameters=registered(graph.parameters, graph.stored))


class _Index:
    """Who makes and reads each tensor."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.maker = {name: node for node in graph.nodes for name in node.outputs}
        self.uses = Counter(name for node in graph.nodes for name in node.inputs)

    def made_by(self, name: str, *ops: str) -> Node | None:
        """The node that makes a tensor which one other alone reads, if it is one of these ops."""
        node = self.maker.get(name)
        return node if node is not None and node.op in ops and self.uses[name] == 1 else None

    def tensors(self, node: Node) -> list[str]:
        """Its operands but numbers."""
        return [name for name in node.inputs if name and name not in self.graph.scalars]

    def after(self, fused: Mapping[str, Node], gone: Iterable[str]) -> OnnxGraph:
        """The graph with `fused` in the place of the nodes that make those tensors, without the nodes of `gone`."""
        out, nodes = set(gone), []
        for node in self.graph.nodes:
            if node.outputs and node.outputs[0] in fused:
                nodes.append(fused[node.outputs[0]])
            elif not node.outputs or node.outputs[0] not in out:
                nodes.append(node)
        return replace(self.graph, nodes=tuple(nodes))


def _silu(graph: OnnxGraph) -> OnnxGraph:
    """x * sigmoid(x)."""
    index, fused, gone = _Index(graph), {}, []
    for node in graph.nodes:
        if node.op != "Mul" or len(node.inputs) != 2:
            continue
        for x, gate in (node.inputs, node.inputs[::-1]):
            sigmoid = index.made_by(gate, "Sigmoid")
            if sigmoid is not None and sigmoid.inputs[0] == x:
                fused[node.outputs[0]] = replace(node, op="Silu", inputs=(x,))
                gone.append(gate)
    return index.after(fused, gone)


def _recurrent(graph: OnnxGraph) -> OnnxGraph:
    """LSTM layers with their weights as they are stored: exporters put gates in another order."""
    maker = {name: node for node in graph.nodes for name in node.outputs}
    nodes = []

    def stored(name: str) -> list[str]:
        if name in graph.parameters or name not in maker:
            return [name] if name in graph.parameters else []
        if maker[name].op not in ("Slice", "Split", "Concat", "Unsqueeze", "Squeeze", "Reshape"):
            return []
        return [each for source in maker[name].inputs if source for each in stored(source)]

    for node in graph.nodes:
        if node.op == "LSTM":
            weights = dict.fromkeys(each for name in node.inputs[1:4] for each in stored(name))
            node = replace(node, inputs=(node.inputs[0], *weights), outputs=node.outputs[:1])
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _stacked(graph: OnnxGraph) -> OnnxGraph:
    """Layers of one module, each of which reads the one before, as one op."""
    index, gone = _Index(graph), list[str]()
    fused: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "LSTM":
            continue
        between = []
        source = index.made_by(node.inputs[0], "Squeeze", "Transpose", "Reshape")
        while source is not None:
            between.append(source.outputs[0])
            source = index.made_by(source.inputs[0], "Squeeze", "Transpose", "Reshape", "LSTM")
            if source is not None and source.op == "LSTM":
                break
        before = source and fused.get(source.outputs[0], source)
        if before is not None and before.scopes == node.scopes:
            attributes = {**node.attributes, "layers": before.attributes.get("layers", 1) + 1}
            fused.pop(before.outputs[0], None)
            inputs = (*before.inputs, *node.inputs[1:])
            fused[node.outputs[0]] = replace(node, inputs=inputs, attributes=attributes)
            gone += [*between, before.outputs[0]]
    return index.after(fused, gone)


def _without_dropouts(graph: OnnxGraph) -> OnnxGraph:
    """Dropout of nothing is no op."""
    nodes = []
    for node in graph.nodes:
        ratio = node.attributes.get("ratio", graph.scalars.get(node.inputs[1]) if len(node.inputs) > 1 else None)
        none = node.op == "Dropout" and ratio is not None and float(ratio) == 0
        nodes.append(replace(node, op="Identity", inputs=node.inputs[:1], outputs=node.outputs[:1]) if none else node)
    return replace(graph, nodes=tuple(nodes))


def _packed(graph: OnnxGraph) -> OnnxGraph:
    """Query, key and value of nn.MultiheadAttention, one projection, which it copies into three stacks."""
    readers: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node.op)
    maker = {name: node for node in graph.nodes for name in node.outputs}
    shapes, nodes = dict(graph.shapes), []
    for node in graph.nodes:
        out = node.outputs[0]
        turned = maker.get(node.inputs[0]) if node.inputs else None
        if (
            node.op == "Squeeze"
            and readers.get(out) == ["Select"] * 3
            and turned is not None
            and turned.op == "Transpose"
        ):
            shapes[f"{out}.view"] = shapes[out]
            nodes.append(replace(node, outputs=(f"{out}.view",)))
            node = replace(node, op="Copy", inputs=(f"{out}.view",))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), shapes=shapes)


def _rsqrt(graph: OnnxGraph) -> OnnxGraph:
    """1 / sqrt(x)."""
    index, fused, gone = _Index(graph), {}, []
    for node in graph.nodes:
        if node.op not in ("Reciprocal", "Div"):
            continue
        root = index.made_by(node.inputs[-1], "Sqrt")
        if root is not None and index.tensors(node) == [root.outputs[0]]:
            fused[node.outputs[0]] = replace(node, op="Rsqrt", inputs=root.inputs)
            gone.append(root.outputs[0])
    return index.after(fused, gone)


def _gelu(graph: OnnxGraph) -> OnnxGraph:
    """x * (erf(x / sqrt(2)) + 1) * 0.5, in the order in which PyTorch writes it or another."""
    index, fused, gone = _Index(graph), {}, []
    for erf in graph.nodes:
        if erf.op != "Erf":
            continue
        scaled = index.made_by(erf.inputs[0], "Div", "Mul")
        plus = _reader(index, erf.outputs[0], "Add")
        product = plus and _reader(index, plus.outputs[0], "Mul")
        if scaled is None or plus is None or product is None:
            continue
        x = index.tensors(scaled)[0]
        end, inner = product, [scaled, erf, plus]
        half = _reader(index, product.outputs[0], "Mul")
        if x in product.inputs and half is not None and len(index.tensors(half)) == 1:
            end, inner = half, [*inner, product]
        if x not in (*product.inputs, *end.inputs):
            continue
        fused[end.outputs[0]] = replace(end, op="Gelu", inputs=(x,))
        gone += [node.outputs[0] for node in inner]
    return index.after(fused, gone)


def _reader(index: _Index, name: str, op: str) -> Node | None:
    """The only node that reads the tensor, if it is this op."""
    found = [node for node in index.graph.nodes if name in node.inputs] if index.uses[name] == 1 else []
    return found[0] if found and found[0].op == op else None


def _linear(graph: OnnxGraph) -> OnnxGraph:
    """A product with a stored matrix, and the bias added to it."""
    index, fused, gone = _Index(graph), {}, []
    biased = {name: node for node in graph.nodes if node.op == "Add" for name in node.inputs}
    for node in graph.nodes:
        if node.op != "MatMul":
            continue
        x, weight = node.inputs
        turned = index.maker.get(weight)
        stored = turned.inputs[0] if turned is not None and turned.op == "Transpose" else weight
        if stored not in graph.parameters or len(graph.shapes[stored].dims) != 2:
            continue
        if turned is not None:
            gone.append(weight)
        out = node.outputs[0]
        add = biased.get(out) if index.uses[out] == 1 and out not in graph.outputs else None
        bias = next((name for name in add.inputs if name in graph.parameters), "") if add is not None else ""
        if add is not None and len(graph.shapes[bias].dims if bias else ()) == 1:
            fused[add.outputs[0]] = replace(add, op="Linear", inputs=(x, stored, bias), name=node.name)
            gone.append(out)
        else:
            fused[out] = replace(node, op="Linear", inputs=(x, stored))
    return index.after(fused, gone)


def _attention(graph: OnnxGraph) -> OnnxGraph:
    """What scaled_dot_product_attention is exported as: query and key both scaled, where attention that a model spells out scales
    the product."""
    index, fused, gone = _Index(graph), {}, []
    shapes = dict(graph.shapes)
    for softmax in graph.nodes:
        if softmax.op != "Softmax":
            continue
        inner, out = [softmax], softmax.outputs[0]
        readers = [node for node in graph.nodes if out in node.inputs]
        if sorted(node.op for node in readers) == ["IsNaN", "Where"]:  # Rows that are masked as a whole.
            inner += readers
            out = next(node for node in readers if node.op == "Where").outputs[0]
        dropout = _reader(index, out, "Dropout")
        if dropout is not None:
            inner.append(dropout)
            out = dropout.outputs[0]
        end = _reader(index, out, "MatMul")
        scores = index.made_by(softmax.inputs[0], "Add", "MatMul")
        mask = ""
        if scores is not None and scores.op == "Add":
            inner.append(scores)
            product = next(
                (n for n in (index.made_by(name, "MatMul") for name in scores.inputs) if n is not None), None
            )
            mask = next((name for name in scores.inputs if product is None or name != product.outputs[0]), "")
            scores = product
        if scores is None or end is None:
            continue
        sides = [index.made_by(name, "Mul") for name in scores.inputs]
        if not all(side is not None and len(index.tensors(side)) == 1 for side in sides):
            continue
        inner += [scores, *(side for side in sides if side is not None)]
        query, key = (index.tensors(side)[0] for side in sides if side is not None)
        turned = index.made_by(key, "Transpose")
        if turned is not None:  # Of the key as it is stored, its last two axes are turned for the product alone.
            order = tuple(turned.attributes["perm"])
            order = (*order[:-2], order[-1], order[-2])
        if turned is not None and order == tuple(range(len(order))):
            inner.append(turned)
            key = turned.inputs[0]
        elif turned is not None:
            shapes[key] = replace(shapes[key], dims=(*shapes[key].dims[:-2], *shapes[key].dims[:-3:-1]))
            fused[key] = replace(turned, attributes={**turned.attributes, "perm": order})
        value = end.inputs[1]
        inputs = (query, key, value, *([mask] if mask else []))
        fused[end.outputs[0]] = replace(
            end, op="Attention", inputs=inputs, attributes={"dropout": dropout is not None, "outputs": 1}
        )
        gone += [node.outputs[0] for node in inner]
    return replace(index.after(fused, gone), shapes=shapes)


def _gathers(graph: OnnxGraph) -> OnnxGraph:
    """Rows of a stored table, and slices by one number, which are views."""
    nodes = []
    for node in graph.nodes:
        if node.op == "Gather":
            table, at = node.inputs
            if table in graph.parameters and node.attributes.get("axis", 0) == 0 and at not in graph.scalars:
                node = replace(node, op="Embedding")
            elif at in graph.scalars and not graph.shapes[at].dims:
                node = replace(node, op="Select", inputs=(table,))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _without_shape_masks(graph: OnnxGraph) -> OnnxGraph:
    """Attention without masks that depend on no input: they are made because the exporter traces, and otherwise left out as causal or
    none. What only they need goes, too."""
    known = set(graph.parameters) | set(graph.buffers) | set(graph.scalars)
    maker = {name: node for node in graph.nodes for name in node.outputs}
    for node in graph.nodes:
        if all(name in known for name in node.inputs if name) and not any(
            graph.shapes[name].floating and name in graph.parameters for name in node.inputs if name
        ):
            known |= set(node.outputs)
    nodes = []
    for node in graph.nodes:
        mask = node.inputs[3] if node.op == "Attention" and len(node.inputs) > 3 else ""
        if mask and _whole(mask, maker, known):
            node = replace(node, inputs=node.inputs[:3])
        nodes.append(node)
    return _pruned(replace(graph, nodes=tuple(nodes)))


def _whole(mask: str, maker: Mapping[str, Node], known: set[str]) -> bool:
    """Whether the mask depends on shapes alone."""
    return mask in known and mask in maker


def _pruned(graph: OnnxGraph) -> OnnxGraph:
    """Without nodes that nothing needs."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(name in needed for name in node.outputs):
            needed |= set(node.inputs)
            kept.append(node)
    parameters = tuple(name for name in graph.parameters if name in needed)
    buffers = tuple(name for name in graph.buffers if name in needed)
    return replace(graph, nodes=tuple(reversed(kept)), parameters=parameters, buffers=buffers)
