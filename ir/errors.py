# SPDX-License-Identifier: Apache-2.0
"""Errors a user can cause. Each carries one line: what, where, expected, got, what to do."""

from __future__ import annotations


class MemcError(Exception):
    """Base of all errors that are the input's fault. `exit_code` is what the command line returns."""

    exit_code = 3


class CheckError(MemcError):
    """A comparison or a plan check failed."""

    exit_code = 1


class UsageError(MemcError):
    """Bad options or arguments."""

    exit_code = 2


class InvalidError(MemcError):
    """The model, IR text or problem file is invalid."""


class UnsupportedError(MemcError):
    """Valid input that memc cannot compile yet; the message names the node and op."""


class PluginError(MemcError):
    """What another package added to memc, such as a pass, failed; the message names the package."""


class CodegenError(UnsupportedError):
    """No kernel of some ops compiles. `groups`: the results, by name, of the fused groups among them, if they all are fused:
    their ops may compile one by one."""

    def __init__(self, message: str, groups: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.groups = groups


class BudgetError(MemcError):
    """The memory budget or capacity cannot be met; the message names the least reachable."""

    exit_code = 4
    least: int | None = None
    """The least reachable bytes; None where they are not known."""


class DeviceError(MemcError):
    """The device, or its driver, failed. What was on it may be lost: make a new executable, in a new process if that fails
    too."""


class NoDeviceError(DeviceError, UnsupportedError):
    """There is no such device here, or no driver for it."""


class DeviceMemoryError(DeviceError):
    """The device's memory (on the CPU: the host's) does not hold what is planned, or the host's cannot be pinned for copies."""

    exit_code = 4


class LaunchError(DeviceError):
    """The device refused a kernel or broke it off: a mistake in generated code, or a broken device."""

    exit_code = 70


class OpError(InvalidError):
    """An op's operands, attributes or types break its contract. Raised by type inference without a location;
    whoever knows the op (verifier, importer, builder) adds it."""
