# SPDX-License-Identifier: Apache-2.0
"""What the phantom device does with each function of CUDA's libraries that a PyTorch asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from memc.ir.errors import UnsupportedError

LIBRARIES = re.compile(r"(__cuda|__nvrtc|cuda|cublas|cudnn|cufft|cusolver|cusparse|nccl|nvrtc|cuFile|cu[A-Z])\w*")
"""Names of functions that the phantom device stands for."""

NOTHING = re.compile(
    r"__cuda(InitModule|LaunchKernel|RegisterFatBinaryEnd|RegisterFunction|RegisterVar|UnregisterFatBinary)"
    r"|cuda(DeviceEnablePeerAccess|DeviceSynchronize|EventDestroy|EventQuery|EventRecord(WithFlags)?|EventSynchronize)"
    r"|cuda(FuncSet(Attribute|CacheConfig)|HostRegister|HostUnregister|MemPool(SetAccess|SetAttribute|TrimTo))"
    r"|cuda(Launch(CooperativeKernel|Kernel(ExC)?)|MemcpyToSymbol(Async)?|Profiler(Start|Stop))"
    r"|cuda(Stream(Destroy|Query|Synchronize|WaitEvent|SetAttribute)|ThreadExchangeStreamCaptureMode)"
    r"|cublas(Lt)?[A-Z]\w*"
    r"|cudnn(BatchNormalization\w+|PoolingForward|RNN(Forward|Backward(Data|Weights)_v8)|SetStream|SpatialTf\w+)"
    r"|cusolverDn(Create|Destroy|SetStream)|cusparse(Create|Destroy|SetStream)|cufft(Create|Destroy|SetStream)"
    r"|nccl(AllGather|AllReduce|AlltoAll|Bcast|Broadcast|Recv|Reduce|ReduceScatter|Send|Group(Start|End))"
    r"|nccl(RedOp(CreatePreMulSum|Destroy)|Comm(Abort|Destroy|Finalize|Register|Deregister))"
    r"|cu(FuncSet(Attribute|CacheConfig)|Launch(Cooperative)?Kernel|LinkAddData_v2|LinkComplete|LinkCreate_v2)"
    r"|cuTensorMapEncodeTiled|__nvrtcCPEx|nvrtc(CompileProgram|DestroyProgram|AddNameExpression)"
)
"""Functions that report success and do no more: a device's work is not done."""

REAL = re.compile(
    r"cudnn((Create|Destroy)\w*Descriptor|Set(Activation|CTCLoss|Convolution|Filter|Pooling|Tensor|SpatialTransformer)\w+"
    r"|GetVersion|GetErrorString|GetLastErrorString|GetProperty|GetCudartVersion|Get(Filter|Tensor)NdDescriptor)"
    r"|nccl(GetErrorString|GetVersion)"
)
"""Functions of the installed library that need no device."""

REFUSED = re.compile(
    r"cuda(Graph|Ipc|StreamBeginCapture|StreamEndCapture|MemPoolGetAttribute)\w*"
    r"|cudnn(CTCLoss|GetCTCLoss|Convolution|FindConvolution|GetConvolution)\w*"
    r"|cufft\w+|cusolverDn\w+|cusparse\w+|cuFile\w+"
    r"|nccl(Mem(Alloc|Free)|DevComm(Create|Destroy)|CommWindow(Register|Deregister)|CommShrink|GroupSimulateEnd)"
)
"""Functions without which a script may do; one that calls them is told so."""


LOOKED_UP = (
    *(
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemRetainAllocationHandle",
        "cuMemsetD32Async",
    ),
    *("cuStreamWriteValue32", "cuCtxFromGreenCtx", "cuGreenCtxCreate", "cuLibraryLoadFromFile", "cuModuleGetGlobal_v2"),
    "cuMemcpyDtoH_v2",
    *("cuGreenCtxDestroy", "cuGreenCtxStreamCreate", "cuDevSmResourceSplitByCount", "cuDeviceGetDevResource"),
    *(
        "cuDevResourceGenerateDesc",
        "cuMulticastAddDevice",
        "cuMulticastBindMem",
        "cuMulticastCreate",
        "cuMulticastUnbind",
    ),
    *("cuMemGetAllocationPropertiesFromHandle", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGpuFabricInfoV"),
    *("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2"),
)
"""Functions of the driver and of NVML that PyTorch looks up by name when it starts to use one of them; they are refused when they are called."""

LOOKED_UP_FOR_NOTHING = (
    *(
        "cuLaunchKernelEx",
        "cuKernelSetAttribute",
        "cuLibraryUnload",
        "cuLinkAddData",
        "cuLinkAddFile_v2",
        "cuLinkCreate",
    ),
    *(
        "cuLinkDestroy",
        "cuDevicePrimaryCtxRelease",
        "cuDevicePrimaryCtxReset",
        "cuStreamSynchronize",
        "cuCtxPopCurrent",
    ),
    *("cuCtxPushCurrent", "cuCtxGetLimit"),
)
"""The same, which report success."""


@dataclass(frozen=True)
class Stubs:
    """Functions to generate, by what they do."""

    nothing: tuple[str, ...]
    refused: tuple[str, ...]


def stubs(needed: Iterable[str], offered: Iterable[str], implemented: Iterable[str], where: str) -> Stubs:
    """What to generate.

    Args:
        needed: names that PyTorch's libraries take from others.
        offered: names that the replaced libraries offer besides, which an extension may call.
        implemented: names that the phantom device has.
        where: which PyTorch, in messages.

    Raises UnsupportedError that names what the phantom device does not know.
    """
    done = set(implemented)
    nothing: set[str] = set()
    refused: set[str] = set()
    unknown: set[str] = set()
    for name in set(needed) - done:
        if not LIBRARIES.fullmatch(name) or REAL.fullmatch(name):
            continue
        if NOTHING.fullmatch(name):
            nothing.add(name)
        elif REFUSED.fullmatch(name):
            refused.add(name)
        else:
            unknown.add(name)
    if unknown:
        names = ", ".join(sorted(unknown)[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
        raise UnsupportedError(
            f"{where}: expected functions of CUDA that the phantom device knows, got {names}; use PyTorch 2.11, for which it was made"
        )
    for name in set(offered) - done - nothing - refused:
        if LIBRARIES.fullmatch(name) and not REAL.fullmatch(name):
            (nothing if NOTHING.fullmatch(name) else refused).add(name)
    nothing.update(set(LOOKED_UP_FOR_NOTHING) - done)
    refused.update(set(LOOKED_UP) - done - nothing)
    return Stubs(tuple(sorted(nothing)), tuple(sorted(refused)))


def stub_source(made: Stubs) -> str:
    """The C++ source of the generated functions. They are weak, so that a function written by hand comes first."""
    lines = ["// Generated for one installation of PyTorch."]
    lines += ['#include "device.h"', '#define WEAK extern "C" __attribute__((weak, visibility("default")))']
    lines += [f"WEAK int {name}() {{ return 0; }}" for name in made.nothing]
    why = "the script needs it, and the phantom device does not have it; record the job on a GPU instead"
    lines += [f'WEAK int {name}() {{ phantom::Refuse("{name}", "{why}"); }}' for name in made.refused]
    return "\n".join(lines) + "\n"
