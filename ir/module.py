# SPDX-License-Identifier: Apache-2.0
"""Modules: functions with the data of their weights, and the target they are for."""

from __future__ import annotations

from dataclasses import dataclass, field

from .core import Array, Function
from .errors import InvalidError
from .target import Target
from .text.printer import print_function, print_target


@dataclass(eq=False, repr=False)
class Module:
    """Functions and the data of their weights. `main` is the entry point."""

    functions: list[Function] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    """Data by name of weight parameter, and what states begin with; arrays may be memory-mapped. Empty for a module
    parsed from text."""
    constants: set[str] = field(default_factory=set)
    """Names of weights that hold no parameter but what the importer computed, such as masks and initial states: never
    trained. Not in the text."""
    bound: dict[str, Array] = field(default_factory=dict)
    """Inputs of the imported model that became constants, by name, with their data. Not in the text."""
    target: Target = field(default_factory=Target)
    """What passes plan for, checkers check against and code is generated for."""

    @property
    def main(self) -> Function:
        """The entry point. Raises InvalidError if there is none."""
        for function in self.functions:
            if function.name == "main":
                return function
        raise InvalidError("module: expected a function @main, where execution begins, got none")

    def __str__(self) -> str:
        """The module as .memir text."""
        header = print_target(self.target)
        return "\n".join([*([header] if header else []), *(print_function(function) for function in self.functions)])

    def __repr__(self) -> str:
        return f"<Module of {', '.join(f'@{f.name} ({len(f.ops)} ops)' for f in self.functions)}>"
