# SPDX-License-Identifier: Apache-2.0
"""Plans the memory of a graph whose ops memc does not know, as text from some other framework.

    python examples/plan_only.py

Ops in quotes are foreign: memc orders them, checks them and places their tensors, but cannot run them. The offsets go
back to the framework that has the kernels.
"""

import memc
from memc.ir.liveness import arena_bytes, lifetimes, lower_bound, unoptimized_bytes

ALIGNMENT = 256

TEXT = """\
func @main(%tokens: i64[8,128] {role = input}, %table: f16[1000,64] {role = weight}) -> (f16[8,64] {name = "pooled"}) {
  %0 = "aten.embedding"(%table, %tokens) : f16[8,128,64]
  %1, %mean, %rstd = "aten.native_layer_norm"(%0) {eps = 1e-05} : f16[8,128,64], f32[8,128,1], f32[8,128,1]
  %2 = "mylib.attention"(%1) workspace(%scratch: u8[65536]) : f16[8,128,64]
  %3 = "aten.add.Tensor"(%0, %2) : f16[8,128,64]
  %4 = "aten.mean.dim"(%3) {dim = [1]} : f16[8,64]
  return %4
}
"""


def main() -> None:
    module = memc.parse(TEXT, "foreign.memir")
    before = unoptimized_bytes(module.main, ALIGNMENT)
    memc.PassManager.parse(f"assign-addresses{{alignment={ALIGNMENT}}}").run(module)
    for life in lifetimes(module.main):
        place = life.root.placement
        print(f"%{life.root.name:8} {life.nbytes:7} bytes at {place.offset:7}, live in [{life.lower}, {life.upper})")
    print(f"arena {arena_bytes(module.main, ALIGNMENT):,} bytes; unoptimized {before:,} bytes")
    print(f"lower bound {lower_bound(lifetimes(module.main), ALIGNMENT):,} bytes")


if __name__ == "__main__":
    main()
