# SPDX-License-Identifier: Apache-2.0
"""Running an artifact. Needs numpy and TVM's runtime; the kernel library only where the artifact calls it."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.runtime import manifest as manifests
from memc.runtime import safetensors
from memc.runtime.algorithms import Algorithms
from memc.runtime.cuda_graph import Replays
from memc.runtime.manifest import LIBRARY, WEIGHTS, Manifest, Spec
from memc.runtime.target import machine, missing_flags
from memc.runtime.tensors import IR_DTYPE, aligned, array_over, empty, numpy_dtype, tensor_over

Array = npt.NDArray[Any]


def load(path: str | Path, *, cuda_graph: bool = True) -> Executable:
    """The executable of the artifact in folder `path`.

    Allocates its arena and loads its weights, once. One that updates states is a `TrainingStep`. On CUDA, runs after the
    first are launched as one CUDA graph, unless `cuda_graph` is false. Raises InvalidError for a missing or damaged
    artifact and UnsupportedError if this machine cannot run it.
    """
    manifest = manifests.read(path)
    if manifest.states:
        from memc.runtime.training import TrainingStep

        return TrainingStep(manifest, cuda_graph)
    return Executable(manifest, cuda_graph)


class Executable:
    """A compiled model. Call it with inputs in order or by name; it returns outputs by name.

    Inputs are numpy arrays or tensors that support DLPack, of the exact shape and element type. They are read where
    they are if they lie on the model's device, compact and aligned (64 bytes on the CPU, 256 on CUDA), and copied there
    otherwise; they are never written to. Outputs are fresh at each call: numpy arrays on the CPU, TVM tensors (which
    support DLPack) on CUDA. Calls of one executable share its arena, so that those from several
    threads run one after another.
    """

    def __init__(self, manifest: Manifest, cuda_graph: bool = True) -> None:
        self.manifest = manifest
        self.keeps: object = None
        """Whatever must live as long as this does, such as a temporary artifact."""
        self.inputs: tuple[Spec, ...] = manifest.inputs
        self.outputs: tuple[Spec, ...] = manifest.outputs
        check_machine(manifest)
        tvm = import_tvm(manifest)
        self.device = tvm.cuda(0) if manifest.kind == "cuda" else tvm.cpu(0)
        check_device(manifest, self.device)
        load_kernel_library(manifest)
        self.machine = start(manifest, self.device)
        self.arena = self.machine["arena"]()
        self.weights = self.machine["weights"]()
        self._enqueue = enqueue(manifest, self.machine["main"], (self.arena, self.weights), cuda_graph)
        self._makers = [self.machine[f"output.{n}"] for n in range(len(self.outputs) if manifest.kind == "cuda" else 0)]
        self._staged: dict[str, Any] = {}
        self._algorithms = Algorithms(manifest.path, self.device) if calls_cuda(manifest) else None
        self._running = threading.Lock()
        if manifest.weights_bytes:
            upload(manifest, self.machine["bytes_of_weights"](self.weights), tvm.runtime)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run once; outputs by name. Raises UsageError for a wrong name, number, shape, element type or device of the inputs."""
        bound = self.bind(args, kwargs)
        with self._running:
            given = [self.tensor(spec, value) for spec, value in bound]
            made = [self.buffer(n) for n in range(len(self.outputs))]
            self._enqueue([*given, *[tensor for _, tensor in made]])
            if self._algorithms is not None:  # The first run chooses them.
                self._algorithms.save()
                self._algorithms = None
        return {spec.name: value for spec, (value, _) in zip(self.outputs, made)}

    def run_numpy(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on numpy arrays by name; outputs as numpy arrays by name, on any device."""
        results = Executable.__call__(self, **inputs)  # A training step's own call may return the loss alone.
        return {spec.name: self.to_numpy(spec, results[spec.name]) for spec in self.outputs}

    def input(self, name: str) -> Spec:
        """The input of that name. Raises UsageError if there is none."""
        return find(self.inputs, name, "input")

    def output(self, name: str) -> Spec:
        """The output of that name. Raises UsageError if there is none."""
        return find(self.outputs, name, "output")

    def statistics(self) -> dict[str, int]:
        """Bytes by kind of memory: arena and weights are held as long as the executable, inputs and outputs per run."""
        return {
            "arena": self.manifest.arena_bytes,
            "weights": self.manifest.weights_bytes,
            "inputs": sum(spec.nbytes for spec in self.inputs),
            "outputs": sum(spec.nbytes for spec in self.outputs),
        }

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
        return [(spec, values[spec.name]) for spec in self.inputs]

    def tensor(self, spec: Spec, value: Any) -> Any:
        """An input as a TVM tensor on the device, in place where possible."""
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            require(spec, array.dtype.name if array.dtype.isnative else str(array.dtype), array.shape)
            host = tensor_over(aligned(array))
            return host if self.manifest.kind == "llvm" else self.staged(spec, host)
        import tvm_ffi

        if not hasattr(value, "__dlpack__") and not isinstance(value, tvm_ffi.Tensor):
            raise UsageError(f"input {spec}: expected a numpy array or a DLPack tensor, got {type(value).__name__}")
        try:
            tensor = value if isinstance(value, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise UsageError(f"input {spec}: cannot be read through DLPack: {error}") from None
        require(spec, str(tensor.dtype), tuple(int(d) for d in tensor.shape))
        return self.placed(spec, value, tensor)

    def placed(self, spec: Spec, value: Any, tensor: Any) -> Any:
        """A DLPack tensor of the right type: itself if it is usable where it is, else a copy."""
        here = str(tensor.device) == str(self.device)
        usable = tensor.is_contiguous() and tensor.data_ptr() % self.manifest.alignment == 0
        if here and usable:
            return tensor
        if not tensor.is_contiguous():
            raise UsageError(f"input {spec}: expected a compact row-major tensor, got strides {tuple(tensor.strides)}")
        if here and self.manifest.kind == "llvm":
            return tensor_over(aligned(array_over(tensor, spec.dtype)))
        return self.staged(spec, tensor)

    def staged(self, spec: Spec, tensor: Any) -> Any:
        """A copy on the device that lasts until the next run: always in one place, where graphs expect it."""
        if spec.name not in self._staged:
            self._staged[spec.name] = self.moved(tensor)
        else:
            self._staged[spec.name].copyfrom(tensor)
        return self._staged[spec.name]

    def moved(self, tensor: Any) -> Any:
        """A new copy on the device."""
        import tvm

        copy = tvm.runtime.empty(tuple(tensor.shape), str(tensor.dtype), self.device)
        return copy.copyfrom(tensor)

    def buffer(self, number: int) -> tuple[Any, Any]:
        """Fresh memory for an output: what the caller gets, and a tensor over it.

        On CUDA it comes from the virtual machine's pool, to which it returns once nobody holds it.
        """
        spec = self.outputs[number]
        if self.manifest.kind == "llvm":
            array = empty(spec.shape, numpy_dtype(spec.dtype))
            return array, tensor_over(array)
        tensor = self._makers[number]()
        return tensor, tensor

    def to_numpy(self, spec: Spec, value: Any) -> Array:
        if isinstance(value, np.ndarray):
            return value
        import tvm

        host = np.empty(spec.shape, numpy_dtype(spec.dtype))
        if spec.nbytes:
            raw = value._create_view((spec.nbytes,), "uint8")
            host.reshape(-1).view(np.uint8)[...] = raw.copyto(tvm.cpu(0)).numpy()
        return host


def require(spec: Spec, dtype: str, shape: tuple[int, ...]) -> None:
    if IR_DTYPE.get(dtype) != spec.dtype or tuple(shape) != spec.shape:
        got = f"{IR_DTYPE.get(dtype, dtype)}[{','.join(map(str, shape))}]"
        raise UsageError(f"input {spec.name}: expected {str(spec).split(': ', 1)[1]}, got {got}")


def find(specs: tuple[Spec, ...], name: str, kind: str) -> Spec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise UsageError(f"no {kind} is called {name}; expected {', '.join(s.name for s in specs) or 'none'}")


def check_machine(manifest: Manifest) -> None:
    if manifest.machine != machine():
        raise UnsupportedError(f"{manifest.path}: compiled for {manifest.machine}, this is {machine()}; compile again")
    missing = missing_flags(manifest.cpu)
    if missing:
        raise UnsupportedError(
            f"{manifest.path}: compiled for CPU {manifest.cpu}, this one lacks {', '.join(missing)}; compile for it "
            "with --mcpu"
        )


def import_tvm(manifest: Manifest) -> Any:
    """TVM, with its CUDA runtime where the artifact needs that."""
    import tvm

    if manifest.kind == "cuda":
        path = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
        try:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise UnsupportedError(f"{manifest.path}: needs a CUDA driver, which does not load: {error}") from None
    return tvm


def check_device(manifest: Manifest, device: Any) -> None:
    if manifest.kind != "cuda":
        return
    if not device.exist:
        raise UnsupportedError(f"{manifest.path}: compiled for cuda {manifest.arch}, this machine has no CUDA device")
    built = manifest.arch.removeprefix("sm_").rstrip("af")
    wanted, have = (int(built[:-1]), int(built[-1])), tuple(int(n) for n in str(device.compute_version).split("."))
    if wanted[0] != have[0] or wanted[1] > have[1]:
        found = f"sm_{have[0]}{have[1]}"
        raise UnsupportedError(
            f"{manifest.path}: compiled for {manifest.arch}, the device is {found}; use --arch {found}"
        )


def calls_cuda(manifest: Manifest) -> bool:
    """Whether the artifact calls cuDNN or cuBLASLt."""
    return any(symbol.startswith("memc.cuda.") for symbol in manifest.library_functions)


def load_kernel_library(manifest: Manifest) -> None:
    """Register the kernels the artifact calls: those of libmemc_core and of the libraries that it loads."""
    if not manifest.library_functions:
        return
    import tvm_ffi

    try:
        from memc import native

        native.load()
    except (ImportError, OSError) as error:
        raise UnsupportedError(f"{manifest.path}: needs memc's kernel library, which does not load: {error}") from None
    for symbol in manifest.library_functions:
        if tvm_ffi.get_global_func(symbol, allow_missing=True) is None:
            raise UnsupportedError(f"{manifest.path}: needs {symbol}, which this version of memc does not have")
    if calls_cuda(manifest):
        try:
            tvm_ffi.get_global_func("memc.cuda.load")()
        except RuntimeError as error:
            raise UnsupportedError(f"{manifest.path}: {str(error).strip().splitlines()[-1]}") from None


def enqueue(manifest: Manifest, main: Any, fixed: tuple[Any, ...], cuda_graph: bool) -> Callable[[list[Any]], None]:
    """What runs `main` on `fixed` and the tensors of a call: as a CUDA graph where that is asked for and can be."""
    if manifest.kind == "cuda" and cuda_graph:
        try:
            from memc import native

            native.load()
        except (ImportError, OSError):  # TVM's runtime alone runs it too.
            pass
        else:
            return Replays(main, fixed).run
    return lambda tensors: main(*fixed, *tensors)


def start(manifest: Manifest, device: Any) -> Any:
    """TVM's virtual machine over the artifact's library."""
    import tvm
    from tvm.runtime import vm

    try:
        # A copy, mapped and then deleted: the system's loader takes a path that it has seen for the library that it found
        # there then, although the artifact was written anew.
        with tempfile.TemporaryDirectory(prefix="memc-") as folder:
            library = tvm.runtime.load_module(shutil.copy(manifest.path / LIBRARY, folder))
        return vm.VirtualMachine(library, device)
    except (OSError, RuntimeError, ValueError) as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidError(f"{manifest.path / LIBRARY}: cannot be loaded: {text[-1]}") from None


def upload(manifest: Manifest, slab: Any, runtime: Any) -> None:
    """Fill the weight slab: on the CPU straight from the file, on a device through one host buffer."""
    path = manifest.path / WEIGHTS
    try:
        stored = safetensors.read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidError(f"{path}: damaged weights ({error}); compile again") from None
    staged = array_over(slab, "u8") if manifest.kind == "llvm" else np.zeros(manifest.weights_bytes, np.uint8)
    for slot in manifest.weights:
        data = stored.get(slot.spec.name)
        if data is None or data.size != slot.spec.nbytes:
            size = "nothing" if data is None else f"{data.size} bytes"
            raise InvalidError(f"{path}: expected {slot.spec.nbytes} bytes of {slot.spec}, found {size}; compile again")
        staged[slot.offset : slot.offset + data.size] = data
    if manifest.kind != "llvm":
        slab.copyfrom(staged)
