# SPDX-License-Identifier: Apache-2.0
"""`memc.write_report`: the picture of a plan as files, for browsers, papers and the viewers of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from memc.compile_options import with_options
from memc.ir.errors import UsageError

from .onnx_nodes import annotated
from .page import page_of
from .picture import PlanPicture
from .png import png_of
from .snapshot import snapshot_of
from .sources import PictureSource, Subject, read_subject
from .svg import svg_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from memc.compile_options import Keywords


def _onnx(subject: Subject) -> bytes:
    if subject.module is None or subject.model is None:
        raise UsageError("an annotated model is written of an .onnx model alone, whose nodes it tells of")
    return bytes(annotated(subject.model, subject.module, subject.picture).SerializeToString())


KINDS: Mapping[str, Callable[[Subject], bytes]] = {
    ".html": lambda subject: page_of(subject.picture).encode(),
    ".svg": lambda subject: svg_of(subject.picture).encode(),
    ".png": lambda subject: png_of(subject.picture),
    ".pickle": lambda subject: snapshot_of(subject.picture),
    ".onnx": _onnx,
}
"""What is written, by the endings of files' names: the page, pictures of addresses, a memory snapshot of PyTorch, or the annotated model."""


@with_options
def write_report(
    source: PictureSource,
    output: str | Path,
    *,
    diff: PictureSource | None = None,
    title: str | None = None,
    device: int | None = None,
    op_times: str | Path | None = None,
    **options: Unpack[Keywords],
) -> PlanPicture:
    """Write a page that shows where every byte of a plan lies and why, and return what it shows.

    The page is one HTML file that needs no network: addresses over time, live bytes by role, the tensors that are live at the peak,
    copies, and with `diff` what differs from another plan.

    Args:
        source: an artifact, a model, IR text, a CSV problem, a dataflow graph or a memory snapshot of PyTorch by path; or a
            compilation, module or plan. Models are planned with the options.
        output: the file. It ends in .html for the page, .svg or .png for addresses over time alone, .pickle for a memory snapshot that
            PyTorch's viewer shows, or .onnx for the model with the plan in its nodes' metadata.
        diff: another plan, shown below on the same axis.
        title: for the page; by default the name of the file.
        device: of a snapshot with several.
        op_times: a file of measured times, of `memc bench --save-profile`, for the ops of models and artifacts.
        **options: the fields of `Options`.

    Raises:
        MemcError: for anything wrong with the source or the options, or a file that cannot be written.
    """
    kind = Path(output).suffix.lower()
    if kind not in KINDS:
        raise UsageError(f"{output}: expected a name that ends in {', '.join(KINDS)}")
    if diff is not None and kind != ".html":
        raise UsageError(f"{output}: expected a page in .html to compare two plans, got {kind}")
    subject = read_subject(source, title=title, device=device, op_times=op_times, options=options)
    if diff is None:
        write_kind(kind, output, subject)
    else:
        write_page(output, subject.picture, read_subject(diff, options=options).picture)
    return subject.picture


def write_page(output: str | Path, picture: PlanPicture, other: PlanPicture | None = None) -> None:
    """Write the page of a picture, or of two. Raises UsageError if it cannot be written."""
    _write(output, page_of(picture, other).encode())


def write_kind(kind: str, output: str | Path, subject: Subject) -> None:
    """Write what `KINDS` has for `kind`. Raises UsageError for what the source does not have, or a file that cannot be written."""
    _write(output, KINDS[kind](subject))


def _write(output: str | Path, data: bytes) -> None:
    try:
        Path(output).write_bytes(data)
    except (OSError, ValueError) as error:
        raise UsageError(f"{output}: cannot write: {getattr(error, 'strerror', None) or error}") from None
