# SPDX-License-Identifier: Apache-2.0
"""Running an artifact. Needs numpy and TVM's runtime; the kernel library only where the artifact calls it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.arrays import plain, type_name
from memc.ir.errors import UsageError
from memc.ir.footprint import INPUTS, OUTPUTS
from memc.runtime.artifact.manifest import COPY_START, Spec
from memc.runtime.cuda.algorithms import Algorithms
from memc.runtime.cuda.cuda_graph import Replays
from memc.runtime.cuda.cuda_runtime import captured_stream, on_stream, synchronize_device
from memc.runtime.cuda.host_slab import SlabRuns
from memc.runtime.execute import forks, labels
from memc.runtime.execute.cut_outputs import cut_outputs
from memc.runtime.execute.device_errors import device_errors
from memc.runtime.execute.device_inputs import Placing
from memc.runtime.execute.inputs import NUMBERS, from_numbers, require
from memc.runtime.execute.load_code import Loaded, calls_cuda
from memc.runtime.execute.memory import allocate
from memc.runtime.execute.tensors import FFI_DTYPE, aligned, empty, numpy_dtype, tensor_over

Array = npt.NDArray[Any]


class Executable:
    """A compiled model. Call it with inputs in order or by name; it returns outputs by name.

    Inputs are numpy arrays or tensors that support DLPack, of the exact shape and element type, or lists of numbers. They are
    read where they are if they lie on the model's device, compact and aligned (64 bytes on the CPU, 256 on CUDA), and copied
    there otherwise; they are never written to. Labels of classes may have any type of integers, or be lists, and must name classes:
    those on the host are checked before the run. Outputs are fresh at each call: numpy arrays on the CPU, TVM tensors (which
    support DLPack) on CUDA. Those whose size depends on data are cut to it.

    Nothing is allocated for the model's tensors after loading but inputs' copies, at the first call, and outputs. Calls of
    one executable share its arena: those from several threads run one after another. `session` gives what runs beside it.
    Failures of the device are `DeviceError`s.
    """

    def __init__(self, loaded: Loaded, shared: Mapping[str, Any] | None = None) -> None:
        """`shared`: storages of another executable of the artifact by space, to use them too."""
        manifest = loaded.manifest
        self.loaded = loaded
        self.manifest = manifest
        self.keeps: object = None
        """Whatever must live as long as this does, such as a temporary artifact."""
        self.inputs: tuple[Spec, ...] = manifest.inputs
        counts = {extent.count for extent in manifest.extents}
        self.outputs: tuple[Spec, ...] = tuple(spec for n, spec in enumerate(manifest.outputs) if n not in counts)
        """Without counts; what has a size that depends on data is at most as large as here."""
        self.device = loaded.device
        self.virtual_machine = loaded.virtual_machine()
        with device_errors(manifest, self.device, "loading"):
            self.storages = allocate(loaded, self.virtual_machine, shared or {})
        self._fixed = tuple(self.storages.values())
        self._in_graph, self._enqueue = runs_of(loaded, self.virtual_machine["main"], self.storages)
        self.placing = Placing(loaded)
        self._makers = makers(loaded, self.virtual_machine) if manifest.kind == "cuda" else []
        self._stream: int | None = None
        """The stream of the last run on CUDA."""
        self._recorded: list[Any] = []
        """Outputs of runs that are parts of the caller's CUDA graphs, which write to them as long as they live."""
        self._warm = False
        self._algorithms = Algorithms(manifest.path, self.device) if calls_cuda(manifest) else None
        self.running = threading.Lock()
        """Held during a run: the arena serves one at a time."""
        self.refusal = ""
        """Why it cannot run, in a forked child; empty if it can."""
        forks.watch(self)

    def __repr__(self) -> str:
        given = ", ".join(map(str, self.inputs))
        made = ", ".join(map(str, self.outputs))
        return f"<{type(self).__name__} of {self.manifest.path}: ({given}) -> ({made})>"

    def storages_of_weights(self) -> dict[str, Any]:
        """The storages of spaces that hold weights, by name."""
        return {space.name: self.storages[space.name] for space in self.manifest.spaces if space.holds == "weights"}

    def session(self) -> Executable:
        """Another executable of the artifact, which shares the weights and has an arena of its own.

        Each runs one call at a time; several run at once, each in a thread. On CUDA their work is enqueued on the current
        stream of the thread that calls.
        """
        self.require_host()
        other = Executable(self.loaded, self.storages_of_weights())
        other.keeps = self.keeps
        return other

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run once; outputs by name. Raises UsageError for a wrong name, number, shape, element type or device of the inputs.

        While the current stream of the thread, TVM's or PyTorch's, is captured into a CUDA graph, the run becomes part of the
        graph: it must not be the first one, and its inputs must be usable where they are. The graph's runs write to these
        outputs; keep the executable, whose arena they use, as long as the graph. They are as large as there is room for, and
        the counts of what is data are among them.
        """
        self.require_usable()
        bound = self.bind(args, kwargs)
        with self.running, device_errors(self.manifest, self.device, "running"):
            if self.manifest.kind == "cuda":
                captured = captured_stream(self.device)
                if captured is not None:
                    return self._record(bound, captured)
                self._follow()
            given = [self.placing.tensor(spec, value) for spec, value in bound]
            made = [self.buffer(n) for n in range(len(self.manifest.outputs))]
            self._enqueue([*given, *[tensor for _, tensor in made]])
            if self._algorithms is not None:  # The first run chooses them.
                self._algorithms.save()
                self._algorithms = None
            self._warm = True
        results = {spec.name: value for spec, (value, _) in zip(self.manifest.outputs, made)}
        return self.finished(bound, cut_outputs(self.manifest, results, self.to_numpy, self._from_numpy))

    def _from_numpy(self, array: Array) -> Any:
        """An array as outputs are given: where the model runs."""
        if self.manifest.kind == "llvm":
            return array
        import tvm

        host = tensor_over(aligned(array))
        return tvm.runtime.empty(tuple(host.shape), str(host.dtype), self.device).copyfrom(host)

    def finished(self, given: list[tuple[Spec, Any]], results: dict[str, Any]) -> dict[str, Any]:
        """What a run on `given` returns of its results."""
        return results

    def _record(self, bound: list[tuple[Spec, Any]], stream: int) -> dict[str, Any]:
        """A run as a part of the CUDA graph that the caller captures on `stream`. Raises UsageError before anything is
        enqueued where it cannot be one."""
        why = f"{self.manifest.path}: cannot be captured into a CUDA graph"
        if not self._warm:
            raise UsageError(f"{why} in its first run, which loads code and chooses algorithms; run it once before")
        given = [self.placing.in_place(spec, value) for spec, value in bound]
        for (spec, _), tensor in zip(bound, given):
            if tensor is None:
                alignment = f"compact and aligned to {self.placing.alignments[spec.name]} bytes"
                raise UsageError(f"{why}: input {spec} would be copied; give a tensor on the device, {alignment}")
        made = [self.buffer(n)[1] for n in range(len(self.manifest.outputs))]
        self._recorded.append(made)
        on_stream(self.device, stream, lambda: self._in_graph(*self._fixed, *given, *made))
        return {spec.name: tensor for spec, tensor in zip(self.manifest.outputs, made)}

    def _follow(self) -> None:
        """Have the next run wait for the last one, whose arena it uses, if that was on another stream."""
        import tvm_ffi

        stream = int(tvm_ffi.get_raw_stream(self.device))
        if self._stream not in (None, stream):
            synchronize_device()
        self._stream = stream

    def require_host(self) -> None:
        """Raise UsageError where results cannot be waited for: while the current stream is captured into a CUDA graph."""
        self.require_usable()
        if self.manifest.kind == "cuda" and captured_stream(self.device) is not None:
            raise UsageError(
                f"{self.manifest.path}: a CUDA graph is being captured, in which nothing comes back to the host; capture calls "
                "of an inference executable on tensors of the device, and nothing else"
            )

    def __copy__(self) -> Executable:
        return self.session()

    def __deepcopy__(self, memo: object) -> Executable:
        return self.session()

    def require_usable(self) -> None:
        """Raise UsageError where it cannot run, in a forked child."""
        if self.refusal:
            raise UsageError(self.refusal)

    def run_numpy(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on numpy arrays by name; outputs as numpy arrays by name, on any device. Raises UsageError as a call does."""
        if not isinstance(inputs, Mapping):
            raise UsageError(f"inputs: expected a dict of arrays by name, got {type(inputs).__name__}")
        self.require_host()
        results = Executable.__call__(self, **inputs)  # A training step's own call may return the loss alone.
        return {spec.name: self.to_numpy(spec, results[spec.name]) for spec in self.outputs if spec.name in results}

    def placed_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        """Arrays by name, as the tensors or arrays that runs read where they are. Raises UsageError for a wrong one."""
        placed: dict[str, Any] = {}
        self.require_host()
        for spec, value in self.bind((), inputs):
            value = from_numbers(spec, value) if isinstance(value, NUMBERS) else value
            array = plain(value, f"input {spec}")
            require(spec, type_name(array), array.shape)
            host = aligned(array)
            with device_errors(self.manifest, self.device, "placing inputs"):
                placed[spec.name] = (
                    host if self.manifest.kind == "llvm" else self.placing.moved(spec, tensor_over(host))
                )
        return placed

    def input(self, name: str) -> Spec:
        """The input of that name. Raises UsageError if there is none."""
        return find(self.inputs, name, "input")

    def output(self, name: str) -> Spec:
        """The output of that name. Raises UsageError if there is none."""
        return find(self.outputs, name, "output")

    def statistics(self) -> dict[str, int]:
        """Bytes by kind of memory: those of spaces are held as long as the executable, inputs and outputs per run."""
        found = self.manifest.footprint
        held = {space.name: space.bytes for space in self.manifest.spaces if space.is_allocated}
        return {**held, INPUTS: found.kind(INPUTS), OUTPUTS: found.kind(OUTPUTS)}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[Spec, Any]]:
        """Each input with its value."""
        expected = ", ".join(map(str, self.inputs)) or "none"
        if len(args) > len(self.inputs):
            raise UsageError(f"got {len(args)} inputs, expected {len(self.inputs)}: {expected}")
        values: dict[str, Any] = {spec.name: value for spec, value in zip(self.inputs, args)}
        for name, value in kwargs.items():
            if name in values:
                raise UsageError(f"input {name} is given twice, by position and by name")
            if name not in {spec.name for spec in self.inputs}:
                raise UsageError(f"no input is called {name}; expected {expected}")
            values[name] = value
        missing = [str(spec) for spec in self.inputs if spec.name not in values]
        if missing:
            raise UsageError(f"missing inputs: {', '.join(missing)}")
        return [(spec, self.checked(spec, values[spec.name])) for spec in self.inputs]

    def checked(self, spec: Spec, value: Any) -> Any:
        """An input's value; labels on the host are checked, and may have any type of integers."""
        rules = [rule for rule in self.manifest.labels if rule.input == spec.name]
        return labels.checked(spec, value, rules) if rules else value

    def buffer(self, number: int) -> tuple[Any, Any]:
        """Fresh memory for an output: what the caller gets, and a tensor over it.

        On CUDA it comes from a pool, to which it returns once nobody holds it.
        """
        spec = self.manifest.outputs[number]
        if self.manifest.kind == "llvm":
            array = empty(spec.shape, numpy_dtype(spec.dtype))
            return array, tensor_over(array)
        tensor = self._makers[number]()
        return tensor, tensor

    def synchronize(self) -> None:
        """Wait until everything that runs enqueued is done, which on the CPU it is when they return."""
        self.require_host()
        if self.manifest.kind == "cuda":
            with device_errors(self.manifest, self.device, "running"):
                self.device.sync()

    def to_numpy(self, spec: Spec, value: Any) -> Array:
        if isinstance(value, np.ndarray):
            return value
        import tvm

        host = np.empty(tuple(int(d) for d in value.shape), numpy_dtype(spec.dtype))
        if host.nbytes:
            raw = value._create_view((host.nbytes,), "uint8")
            with device_errors(self.manifest, self.device, "running"):  # Copies wait for the run.
                host.reshape(-1).view(np.uint8)[...] = raw.copyto(tvm.cpu(0)).numpy()
        return host


def find(specs: tuple[Spec, ...], name: str, kind: str) -> Spec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise UsageError(f"no {kind} is called {name}; expected {', '.join(s.name for s in specs) or 'none'}")


Main = Callable[..., Any]
"""A program's run on storages and tensors."""


def runs_of(loaded: Loaded, main: Main, storages: Mapping[str, Any]) -> tuple[Main, Callable[[list[Any]], None]]:
    """A program's `main` as a part of a caller's CUDA graph, and what runs it on the tensors of a call: as a graph, too, where
    that is asked for and can be."""
    fixed = tuple(storages.values())
    slab = next((SlabRuns(storages[s.name]) for s in loaded.manifest.spaces if s.is_pinned), None)
    if slab is not None:
        _check_copies()
        main = slab.guarded(main)
    elif COPY_START in loaded.manifest.library_functions:
        _check_copies()
        return main, partial(_run_with_copies, main, fixed)
    if loaded.manifest.kind == "cuda" and loaded.cuda_graph and loaded.has_native:
        run = Replays(main, fixed, int(loaded.device.index)).run
    else:
        run = lambda tensors: main(*fixed, *tensors)  # noqa: E731
    return (main, run) if slab is None else (slab.lent(main), slab.ordered(run))


def _check_copies() -> None:
    """Raise UsageError unless MEMC_COPIES, which says when copies run, is as it should be."""
    import tvm_ffi

    try:
        tvm_ffi.get_global_func("memc.copy.check")()
    except RuntimeError as error:
        raise UsageError(str(error).strip().splitlines()[-1]) from None


def _run_with_copies(main: Any, fixed: tuple[Any, ...], tensors: list[Any]) -> None:
    """A run that ends, also by an error, when none of its copies between spaces is under way."""
    try:
        main(*fixed, *tensors)
    except BaseException:
        import tvm_ffi

        tvm_ffi.get_global_func("memc.copy.drain")()
        raise


def makers(loaded: Loaded, virtual_machine: Any) -> list[Callable[[], Any]]:
    """What makes the tensor of each output on CUDA: by memc's pool where that is there, else by the virtual machine's, which
    says on stderr what does not fit."""
    import tvm_ffi

    specs = loaded.manifest.outputs
    if not loaded.has_native:
        return [virtual_machine[f"output.{n}"] for n in range(len(specs))]
    make = tvm_ffi.get_global_func("memc.cuda.output")
    types = [(spec.space, tvm_ffi.dtype(FFI_DTYPE[spec.dtype]), tvm_ffi.Shape(spec.shape)) for spec in specs]
    return [partial(make, int(loaded.device_of(space).index), dtype, shape) for space, dtype, shape in types]
