# SPDX-License-Identifier: Apache-2.0
"""Runs an artifact with nothing but numpy and TVM's runtime: no memc, no compiler.

    python examples/run_with_tvm_only.py model.memc

It feeds zeros and prints each output's shape, mean and first values. The artifact must call no library kernels (compile
with `--kernels generated`, or for CUDA): those live in memc's own library, which `memc.load` brings along.
See docs/artifact.md for the files and functions used here.
"""

import ctypes
import json
import pathlib
import sys

import numpy as np
import tvm
from tvm.runtime import vm

DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16"}
DTYPES |= {"i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool"}


def read_weights(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The bytes of each tensor of a safetensors file."""
    raw = np.memmap(path, np.uint8, mode="r")
    length = int.from_bytes(raw[:8].tobytes(), "little")
    header, data = json.loads(raw[8 : 8 + length].tobytes()), raw[8 + length :]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


def main(folder: pathlib.Path) -> int:
    plan = json.loads((folder / "plan.json").read_text())
    if plan["library_functions"]:
        print(f"the artifact calls {', '.join(plan['library_functions'])}; compile it with --kernels generated")
        return 1
    if plan["target"]["kind"] == "cuda":
        ctypes.CDLL(str(pathlib.Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"), ctypes.RTLD_GLOBAL)
    devices = [tvm.device(kind, int(number)) for kind, number in (name.split(":") for name in plan["devices"])]
    machine = vm.VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), devices)

    # Once: a storage for each memory space but the caller's own, and the weights at their offsets in theirs.
    spaces = [space for space in plan["spaces"] if space["holds"] != "io"]
    storages = [machine[f"space.{space['name']}"]() for space in spaces]
    stored = read_weights(folder / "weights.safetensors")
    for space, storage in zip(spaces, storages):
        if space["holds"] == "weights" and space["bytes"]:
            slab = np.zeros(space["bytes"], np.uint8)
            for entry in (entry for entry in plan["weights"] if entry["space"] == space["name"]):
                data = stored[entry["name"]]
                slab[entry["offset"] : entry["offset"] + data.size] = data
            machine[f"bytes.{space['name']}"](storage).copyfrom(slab)

    # Each run: inputs in, outputs out.
    inputs = [tvm.runtime.tensor(np.zeros(t["shape"], DTYPES[t["dtype"]]), devices[0]) for t in plan["inputs"]]
    outputs = [tvm.runtime.empty(tuple(t["shape"]), DTYPES[t["dtype"]], devices[0]) for t in plan["outputs"]]
    machine["main"](*storages, *inputs, *outputs)
    for entry, output in zip(plan["outputs"], outputs):
        values = output.numpy()
        print(f"{entry['name']}: shape {values.shape}, mean {values.mean():.6g}, first {values.reshape(-1)[:4]}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1])))
