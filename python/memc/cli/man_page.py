# SPDX-License-Identifier: Apache-2.0
"""The man page, in the macros of man(7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .commands import Flag, Verb

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "a check failed: results differ, or a pass broke the IR or its plan",
    2: "usage: unknown or malformed options, inputs that do not fit, files that cannot be written",
    3: "the model, artifact or other input file is missing, invalid or not supported",
    4: "the memory budget cannot be met, or the device's memory does not hold what is planned",
    70: "a bug in memc, or a kernel that the device broke off",
    130: "interrupted",
}

EXAMPLES: Sequence[tuple[str, str]] = (
    ("memc compile model.onnx --dim batch=1", "compile a model and see what memory it takes"),
    ("memc compile model.onnx --train --memory-budget 50% --plan-only", "plan a training step in half of its memory"),
    ("memc report model.onnx --dim batch=1 -o report.html", "see where every byte lies"),
    ("memc estimate train.py --gpu h100", "tell whether a script of PyTorch's fits, without a GPU"),
)


def man_page(verbs: Sequence[Verb], version: str) -> str:
    """The page memc(1)."""
    lines = [f'.TH MEMC 1 "" "memc {_plain(version)}" "User Commands"']
    lines += [".SH NAME", "memc \\- a memory-optimizing compiler for deep-learning models"]
    lines.append(".SH SYNOPSIS")
    for verb in verbs:
        lines += [f".B memc {verb.name}", f"{_plain(' '.join(verb.arguments))} [\\fIOPTIONS\\fR]".strip(), ".br"]
    lines += [
        ".SH DESCRIPTION",
        "memc plans the memory of models and of training steps before they run. Sizes are bytes, or have a unit: 4GiB, 512MiB, 1.5G.",
    ]
    lines.append(".SH COMMANDS")
    for verb in verbs:
        lines += [f".SS memc {verb.name} {_plain(' '.join(verb.arguments))}".rstrip(), _plain(verb.help)]
        for flag in verb.flags:
            lines += [".TP", _flag(flag), _plain(flag.help)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", f".B {code}", _plain(meaning)]
    lines.append(".SH EXAMPLES")
    for command, meaning in EXAMPLES:
        lines += [".TP", f".B {_plain(command)}", _plain(meaning)]
    return "\n".join(filter(None, _safe(lines))) + "\n"


def _flag(flag: Flag) -> str:
    names = ", ".join(f"\\fB{_plain(name)}\\fR" for name in flag.names)
    return names if flag.metavar is None else f"{names} \\fI{_plain(flag.metavar)}\\fR"


def _plain(text: str) -> str:
    """Text of which nothing is a request or an escape."""
    return (
        text.replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("'", "\\(aq")
        .replace("`", "\\(ga")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
    )


def _safe(lines: Sequence[str]) -> Iterator[str]:
    """A line that begins with a period and is no request would be taken for one."""
    for line in lines:
        known = line.startswith((".TH", ".SH", ".SS", ".TP", ".B ", ".br"))
        yield line if known or not line.startswith(".") else f"\\&{line}"
