# SPDX-License-Identifier: Apache-2.0
"""The values, sensible and strange, that `fuzz_cli` draws the arguments of command lines from."""

from __future__ import annotations

from collections.abc import Sequence

NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "64",
    "1000",
    "",
    "x",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e9",
    "0x10",
    "1_0",
    "٣",
    " 2 ",
)


HUGE = ("2147483648", "9223372036854775807", "9223372036854775808", "1" + 40 * "0", "9" * 5000, "-9223372036854775809")


SIZES = (
    "1",
    "4GiB",
    "0",
    "100",
    "1.5K",
    "1e3",
    "9" * 30 + "G",
    "9" * 400 + ".5T",
    "4 GiB",
    "-1",
    "none",
    "free",
    "b=1K",
    "=1",
)


TIMES = ("0", "1ms", "0.1s", "-1s", "nan", "inf", "1e9", "9" * 400, "", "5 s", "x")


WORDS = (
    *(
        "",
        "-",
        "--",
        "x",
        "=",
        "x=",
        "=1",
        "x=1",
        "batch=2",
        "batch=0",
        "batch=-1",
        "batch=2147483648",
        "batch=" + "9" * 5000,
    ),
    *(
        "batch=2=3",
        "x=@a.npy",
        "x=@nosuch",
        "x=[[1,2],[3]]",
        "x=" + "[" * 9000,
        "x=1e999",
        "x=nan",
        "x=null",
        'x={"a":1}',
    ),
    *(
        "x:[2,4]",
        "x:[2,4] x:[1]",
        "x:[]",
        "x:[-1]",
        "x:[" + "9" * 5000 + "]",
        "x[",
        "é→😀",
        "a\nb=1",
        "\x1b[31m",
        "x=random",
    ),
    *(
        "2x4xf32=1",
        "x=2x4xf32=1",
        "x=2x4xf32=nan",
        "x=99x4xf32=1",
        "x=16xf32=1",
        "f32",
        "bf16",
        "tf32",
        "native",
        "sm_90",
    ),
    *(
        "llvm",
        "auto",
        "library",
        "generated",
        "onnxruntime",
        "numpy",
        "adam",
        "mse",
        "dynamic",
        "none",
        "share",
        "reorder",
    ),
    *(
        "momentum=0.9",
        "momentum=nan",
        "beta1=2",
        "{",
        "}",
        "a,b",
        "in-place,assign-addresses",
        "canonicalize{",
        "y=@y.npy",
    ),
    *(
        "assign-addresses{solver=mip}",
        "assign-addresses{alignment=9223372036854775808}",
        "share{strategy=nope}",
        "best-fit",
    ),
    *(
        "rematerialize{budget=50%}",
        "rematerialize{budget=-1}",
        "select-kernels{target=cuda}",
        "canonicalize{fold-limit=x}",
    ),
)


FILES = (
    *(
        "tiny.onnx",
        "tiny.onnx",
        "small.memir",
        "small.memir",
        "tiny.memc",
        "tiny.memc",
        "graph.json",
        "problem.csv",
        "x.npy",
    ),
    *(
        "empty",
        "empty.onnx",
        "empty.memir",
        "empty.json",
        "empty.csv",
        "folder",
        "folder.memc",
        "folder.memir",
        "nosuch.onnx",
    ),
    *(
        "nosuch.memir",
        "noise",
        "noise.onnx",
        "noise.memir",
        "noise.json",
        "noise.csv",
        "utf16.memir",
        "utf16.csv",
        "-",
        "",
    ),
    *("bom.memir", "crlf.memir", "nul.memir", "long.memir", "deep.memir", "deep.json", "chain.memir", "/dev/null"),
    *(
        "/dev/zero",
        "folder/no/x.memir",
        "x" * 300,
        "broken.memc",
        "secret.memir",
        "loop.memir",
        "archive.npz",
        "huge.memir",
    ),
)


OUTPUTS = ("out", "out.memir", "out.memc", "-", "", "/dev/full", "/dev/null", "folder", "no/such/folder/x", "tiny.memc")


SLOW = {
    "runs": ("1", "2", "0", "-1", "x"),
    "warmup": ("0", "1", "-1"),
    "profiled_runs": ("1", "0", "-1"),
    "min_time": ("0", "1ms", "x"),
}
"""Options with which a command may rightly take any time."""


SENSIBLE: dict[str, Sequence[str]] = {
    "dim": ("batch=2", "batch=1", "batch=7"),
    "input_shapes": ("x:[2,4]", "x:[3,4]"),
    "bind": ("x=@x.npy", "x=1"),
    "input": ("x=@x.npy", "x=1", "x=random", "x=2x4xf32=1"),
    "output": ("out", "y=y.npy", "-"),
    "expected": ("y=@x.npy",),
    "alignment": ("64", "128", "1", "3", "1099511627776", "2199023255552"),
    "memory_budget": ("1KiB", "1GiB"),
    "capacity": ("100", "arena=1K"),
    "pass_pipeline": (
        "materialize-returns,canonicalize,in-place,assign-addresses",
        "decompose",
        "assign-addresses",
        "",
    ),
    "disabled_pass": ("fuse", "in-place", "assign-addresses", "reorder"),
    "opt_level": ("0", "1", "2", "3"),
    "kernels": ("auto", "library", "generated"),
    "precision": ("f32", "f16", "bf16"),
    "workspace": ("none", "free", "1K"),
    "loss": ("mse", "bce"),
    "optimizer": ("sgd", "adam", "none"),
    "seed": ("0", "1"),
    "threads": ("1", "2"),
    "against": ("numpy", "onnxruntime"),
    "time_limit": ("100ms", "1s"),
    "solver": ("auto", "best-fit", "mip", "search"),
    "order_solver": ("auto", "list", "dfs"),
}


STREAMS = ("", ">&-", "2>&-", ">&- 2>&- <&-", "> /dev/full", "< /dev/null", "| true")


ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {},
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)
