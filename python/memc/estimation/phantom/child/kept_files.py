# SPDX-License-Identifier: Apache-2.0
"""A script's files, which stay as they are: weights that were never computed must not replace real ones."""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import io
import os
import shutil
from pathlib import Path
from typing import Any

LARGEST_COPY = 2**28
"""Bytes up to which a file that is changed in place is copied first; larger ones, such as mapped data, are changed."""


class KeptFiles:
    """Files that were there before keep their contents, and stay: what is written to them goes to a folder that the run ends with, and
    is found again under their names. Models that are saved to new files are removed at the end.

    This holds for what goes through Python's `open` and `os`, `torch.save` and safetensors.
    """

    def __init__(self, torch: Any, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.moved: dict[str, str] = {}
        """Of files that were there, where their new contents are."""
        self.made: set[str] = set()
        """Files and folders that the script has made."""
        self.saved: set[str] = set()
        """Files of models among them."""
        self.left: set[str] = set()
        """Files and folders that the script would have removed."""
        self._begin(torch)

    def kept(self) -> list[str]:
        """Paths that the script would have changed."""
        return sorted({*self.moved, *self.left})

    def written(self) -> list[str]:
        """Paths of new files, once models that were saved are removed."""
        for path in self.saved:
            if path not in self.moved and os.path.isfile(path):
                self._remove(path)
        return sorted(path for path in self.made if os.path.isfile(path))

    def _ours(self, path: str) -> bool:
        return path in self.made or any(str(parent) in self.made for parent in Path(path).parents)

    def _made(self, file: Any) -> None:
        if (path := _path(file)) is not None:
            self.made.add(path)

    def source(self, file: Any) -> Any:
        """Where to read a file."""
        path = _path(file)
        return file if path is None else self.moved.get(path, file)

    def target(self, file: Any, anew: bool) -> Any:
        """Where to write a file, `anew` or with the contents that it has."""
        path = _path(file)
        if path is None:
            return file
        if path in self.moved:
            return self.moved[path]
        if path.startswith(f"{self.folder}{os.sep}"):
            return file
        if not os.path.exists(path):
            self.made.add(path)
        if self._ours(path) or not os.path.isfile(path):
            return file
        if not anew and os.path.getsize(path) > LARGEST_COPY:
            return file
        place = self._place(path)
        if anew:
            os.close(self._os_open(place, os.O_CREAT | os.O_WRONLY, 0o600))
        else:
            shutil.copyfile(path, place)
        self.moved[path] = place
        return place

    def _place(self, path: str) -> str:
        return str(self.folder / f"{len(self.moved) + len(self.left)}-{os.path.basename(path)}")

    def _begin(self, torch: Any) -> None:
        real_open, real_os_open = builtins.open, os.open
        self._remove, self._rename, self._os_open = os.remove, os.rename, os.open

        def open_file(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            writes = isinstance(mode, str) and any(letter in mode for letter in "wxa+")
            if writes and "x" in mode:
                made = real_open(file, mode, *arguments, **keywords)
                self._made(file)
                return made
            at = self.target(file, "w" in mode) if writes else self.source(file)
            return real_open(at, mode, *arguments, **keywords)

        def os_open(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
            if keywords.get("dir_fd") is not None or flags & getattr(os, "O_DIRECTORY", 0):
                return real_os_open(path, flags, *arguments, **keywords)
            if flags & os.O_EXCL:
                made = real_os_open(path, flags, *arguments, **keywords)
                self._made(path)
                return made
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            at = self.target(path, bool(flags & os.O_TRUNC)) if writes else self.source(path)
            return real_os_open(at, flags, *arguments, **keywords)

        builtins.open = io.open = open_file
        os.open = os_open
        os.rename = os.replace = self._renamed
        os.remove = os.unlink = self._removal(os.remove)
        os.rmdir, shutil.rmtree = self._removal(os.rmdir), self._removal(shutil.rmtree)
        os.mkdir, os.symlink = self._making(os.mkdir, 0), self._making(os.symlink, 1)
        self._keep_models(torch)

    def _making(self, real: Any, at: int) -> Any:
        """`at`: which argument names what is made."""

        @functools.wraps(real)
        def make(*arguments: Any, **keywords: Any) -> None:
            path = _path(arguments[at]) if len(arguments) > at and keywords.get("dir_fd") is None else None
            if path in self.left and os.path.lexists(path):  # As if it had been removed.
                return
            real(*arguments, **keywords)
            self._made(path)

        return make

    def _removal(self, real: Any) -> Any:
        @functools.wraps(real)
        def remove(path: Any, *arguments: Any, **keywords: Any) -> Any:
            at = _path(path)
            if keywords.get("dir_fd") is not None or at is None or self._ours(at) or not os.path.lexists(at):
                return real(path, *arguments, **keywords)
            self.moved.pop(at, None)
            self.left.add(at)
            return None

        return remove

    def _keep_models(self, torch: Any) -> None:
        real_save, real_load = torch.save, torch.load

        def save(obj: Any, f: Any, *arguments: Any, **keywords: Any) -> Any:
            return real_save(obj, self._model(f), *arguments, **keywords)

        def load(f: Any, *arguments: Any, **keywords: Any) -> Any:
            return real_load(self.source(f), *arguments, **keywords)

        torch.save, torch.load = save, load
        self._keep_safetensors()

    def _model(self, file: Any) -> Any:
        at = self.target(file, True)
        path = _path(file)
        if path is not None and self._ours(path):
            self.saved.add(path)
        return at

    def _keep_safetensors(self) -> None:
        if importlib.util.find_spec("safetensors") is None:
            return
        safetensors: Any = importlib.import_module("safetensors")
        write = safetensors.serialize_file

        def serialize_file(tensors: Any, filename: Any, *arguments: Any, **keywords: Any) -> Any:
            return write(tensors, self._model(filename), *arguments, **keywords)

        safetensors.serialize_file = serialize_file

    def _renamed(self, src: Any, dst: Any, *arguments: Any, **keywords: Any) -> None:
        begin, end = _path(src), _path(dst)
        if arguments or any(keywords.values()) or begin is None or end is None:
            self._rename(src, dst, *arguments, **keywords)
            return
        from_there = self.moved.pop(begin, None)
        foreign = from_there is None and os.path.exists(begin) and not self._ours(begin)
        if foreign and os.path.isdir(begin):
            self.left.add(begin)
            return
        if end in self.moved or (os.path.isfile(end) and not self._ours(end)):
            place = self.moved.get(end) or self._place(end)
            self.moved[end] = place
        else:
            place = end
            self.made.add(end)
        if foreign:
            self.left.add(begin)
            shutil.copyfile(begin, place)
        else:
            shutil.move(from_there or begin, place) if place != end else self._rename(from_there or begin, place)
        if begin in self.saved:
            self.saved.discard(begin)
            self.saved.add(end)


def _path(file: Any) -> str | None:
    """The absolute path of what names a file."""
    if not isinstance(file, (str, bytes, os.PathLike)):
        return None
    return os.path.abspath(os.fsdecode(file))
