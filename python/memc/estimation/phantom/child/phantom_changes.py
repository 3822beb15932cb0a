# SPDX-License-Identifier: Apache-2.0
"""What is done otherwise in PyTorch where kernels do nothing."""

from __future__ import annotations

from typing import Any, NoReturn

from phantom_watch import Watch

SMALL = 4096
"""Bytes up to which the phantom device copies, so that what is larger need not be filled."""

FILLS = (
    *("uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "xavier_uniform_", "xavier_normal_"),
    *("kaiming_uniform_", "kaiming_normal_"),
)
"""Functions of torch.nn.init that only fill a tensor."""


def quiet_fills(torch: Any) -> None:
    """Weights are not read, so filling large ones costs time only."""

    def quiet(fill: Any) -> Any:
        def filled(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if torch.is_tensor(tensor) and tensor.numel() * tensor.element_size() > SMALL:
                return tensor
            return fill(tensor, *arguments, **keywords)

        return filled

    for name in FILLS:
        setattr(torch.nn.init, name, quiet(getattr(torch.nn.init, name)))


def refuse_compile(torch: Any, watch: Watch) -> None:
    def compiled(model: Any = None, *arguments: Any, **keywords: Any) -> Any:
        def refused(*_: Any, **__: Any) -> NoReturn:
            watch.finish({"kind": "compile", "message": "", "line": 0})

        return compiled_module(torch, refused) if isinstance(model, torch.nn.Module) else refused

    torch.compile = compiled
    torch.nn.Module.compile = lambda self, *arguments, **keywords: watch.finish({"kind": "compile", "message": "", "line": 0})


def compiled_module(torch: Any, refused: Any) -> Any:
    """A module that says so when it is called."""
    made = torch.nn.Module()
    made.forward = refused
    return made
