# SPDX-License-Identifier: Apache-2.0
"""What the rules of ops know of the run, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...eager import Dims, Machine, Storage
from ...layouts import contiguous, in_order
from ...onnx_graph import Node, OnnxGraph, TensorShape
from ...workspaces import Convolution, Direction, Workspaces

CUBLAS_BYTES = 32 * 2**20
"""That a thread's handle of cuBLAS takes for good on compute capability 9.0."""
CUBLASLT_BYTES = 2**20
"""That cuBLASLt takes, which adds the bias of linear layers."""


@dataclass
class Context:
    """A run of a model."""

    machine: Machine
    graph: OnnxGraph
    workspaces: Workspaces
    training: bool
    needs_gradient: set[str]
    """Tensors through which gradients flow."""
    in_place: Mapping[str, str]
    """By output: which operand the op writes over."""
    shapes: dict[str, TensorShape]
    """Of all tensors, with the types that they have in this precision."""
    matrix_workspaces: bool = True
    """Whether the workspaces of cuBLAS are the allocator's."""
    channels_last: bool = False
    """Whether tensors of four axes have this layout."""
    keeps_workspace: bool = False
    """Whether convolutions share one workspace, which grows and stays."""
    shared: Storage | None = None
    """That workspace."""
    bound: dict[str, Storage] = field(default_factory=dict)
    """Places of parameters' gradients, where they have them from the start."""
    recording: bool = True
    """Whether ops go on the tape."""
    handles: set[str] = field(default_factory=set)
    """Threads that have a handle of cuBLAS or cuBLASLt."""

    def shape(self, name: str) -> TensorShape:
        """Of a tensor."""
        return self.shapes[name]

    def dims(self, name: str) -> Dims:
        """Of a tensor."""
        return self.shapes[name].dims

    def strides(self, name: str) -> Dims:
        """Of a tensor that is there, in elements."""
        storage = self.machine.tensors[name]
        return contiguous(self.dims(name)) if storage.strides is None else storage.strides

    def output(self, node: Node, category: str = "activations", strides: Dims | None = None) -> Storage:
        """A new block for the node's first output."""
        storage = self.machine.new(self.shape(node.outputs[0]).nbytes, category)
        storage.strides = self.layout(self.dims(node.outputs[0])) if strides is None else strides
        self.machine.bind(node.outputs[0], storage)
        return storage

    def result(self, node: Node) -> None:
        """The output in the place of an operand, where the op runs in place, or in a new block."""
        source = self.in_place.get(node.outputs[0])
        if source is None:
            self.output(node)
        else:
            self.alias(node, source)

    def alias(self, node: Node, source: str) -> None:
        """The node's output has the bytes of its input."""
        self.machine.bind(node.outputs[0], self.machine.hold(self.machine.tensors[source]))

    def flows(self, name: str) -> bool:
        """Whether a gradient flows through the tensor."""
        return self.training and self.recording and name in self.needs_gradient

    def gradient(self, name: str) -> Storage | None:
        """A new block for a gradient, if the tensor needs one."""
        if name not in self.needs_gradient:
            return None
        if name in self.bound:
            return self.machine.hold(self.bound[name])
        storage = self.machine.new(self.shape(name).nbytes, self.gradient_category(name))
        storage.strides = self.layout(self.dims(name))
        return storage

    def layout(self, dims: Dims) -> Dims | None:
        """Strides of a new tensor; None for rows one after another."""
        if not self.channels_last or len(dims) != 4:
            return None
        return in_order(dims, (4, 1, 3, 2))

    def workspace(self, direction: Direction, convolution: Convolution) -> None:
        """What cuDNN takes in a call."""
        trial = self.workspaces.trial(direction, convolution)
        if trial:  # After it PyTorch gives all cached memory back.
            self.machine.scratch(trial)
            self.machine.events.empty_cache()
        nbytes = self.workspaces.bytes(direction, convolution)
        if not self.keeps_workspace:
            self.machine.scratch(nbytes)
        elif self.shared is None or nbytes > self.shared.nbytes:
            self.give_up(self.shared)
            self.shared = self.machine.new(nbytes, "workspaces")

    def gradient_category(self, name: str) -> str:
        """Gradients of parameters stay; others are passed on."""
        return "gradients" if name in self.graph.parameters else "temporaries"

    def copy_of_rows(self, name: str, storage: Storage) -> Storage | None:
        """A copy of a tensor of these dims that is not laid out as new ones are; None where it is."""
        dims = self.dims(name)
        wanted = self.layout(dims) or contiguous(dims)
        own = storage.strides or contiguous(dims)
        if all(size == 1 or have == want for size, have, want in zip(dims, own, wanted)):
            return None
        return self.machine.new(self.shape(name).nbytes, "temporaries")

    def give_up(self, *copies: Storage | None) -> None:
        """Ends what `copy_of_rows` made."""
        for copy in copies:
            if copy is not None:
                self.machine.release(copy)

    def cublas(self, thread: str, bias: bool = False) -> None:
        """A thread's first matrix product takes the workspace of its handle, for good; the first with a bias that of cuBLASLt."""
        for handle, nbytes, needed in ((thread, CUBLAS_BYTES, True), ("lt", CUBLASLT_BYTES, bias)):
            if needed and self.matrix_workspaces and handle not in self.handles:
                self.handles.add(handle)
                self.machine.new(nbytes, "workspaces")

    def record(
        self,
        node: Node,
        inputs: Sequence[str],
        saved: Sequence[Storage],
        backward: Callable[[Storage], Sequence[Storage | None]],
    ) -> None:
        """On the tape, if a gradient flows through the node."""
        if not self.training or not self.recording or not any(name in self.needs_gradient for name in inputs):
            return
        outputs = [name for name in node.outputs if name]
        self.needs_gradient.update(outputs)
        self.machine.record(outputs, inputs, saved, backward)
