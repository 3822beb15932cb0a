# SPDX-License-Identifier: Apache-2.0
"""Importing DFT, STFT, the windows and MelWeightMatrix, against numpy's FFT and onnxruntime."""

import numpy as np
import pytest

RANDOM = np.random.default_rng(5)


def parts(spectrum):
    return np.stack([spectrum.real, spectrum.imag], axis=-1)


def run_dft(run_node, x, axis, length, opset, **attrs):
    size = None if length is None else np.array(length)
    if opset < 20:
        return run_node("DFT", [x] + ([] if size is None else [size]), opset=opset, known=(1,), axis=axis, **attrs)[0]
    return run_node("DFT", [x, size, np.array(axis)], opset=opset, known=(1, 2), **attrs)[0]


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft(run_node, opset, axis, length, inverse):
    x = RANDOM.standard_normal((3, 6, 5, 2))
    signal = x[..., 0] + 1j * x[..., 1]
    wanted = (np.fft.ifft if inverse else np.fft.fft)(signal, n=length, axis=axis)
    found = run_dft(run_node, x, axis, length, opset, inverse=inverse)
    np.testing.assert_allclose(found, parts(wanted), atol=1e-12)


@pytest.mark.parametrize("length", [None, 5, 12])
def test_real_transforms(run_node, length):
    x = RANDOM.standard_normal((2, 8, 1))
    wanted = np.fft.rfft(x[..., 0], n=length, axis=1)
    found = run_dft(run_node, x, 1, length, 20, onesided=1)
    np.testing.assert_allclose(found, parts(wanted), atol=1e-12)
    back = run_dft(run_node, parts(wanted), 1, length, 20, onesided=1, inverse=1)
    np.testing.assert_allclose(back[..., 0], np.fft.irfft(wanted, n=length, axis=1), atol=1e-12)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("known", [(1, 2, 3), (1, 3)])
@pytest.mark.parametrize("window", [True, False])
def test_stft(run_node, onesided, known, window):
    x = RANDOM.standard_normal((2, 30, 1))
    weights = RANDOM.uniform(0.1, 1, 8) if window else None
    inputs = [x, np.array(5), weights, np.array(8)]
    (found,) = run_node("STFT", inputs, known=known, onesided=onesided)
    frames = np.stack([x[:, i : i + 8, 0] for i in range(0, 23, 5)], axis=1) * (weights if window else 1)
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(found, parts(wanted), atol=1e-12)


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(same_as_ort, name, periodic):
    same_as_ort(name, [np.array(10)], known=(0,), periodic=periodic, atol=1e-5)


def test_mel_weights(same_as_ort):
    inputs = [np.array(8), np.array(16), np.array(8192), np.array(0, np.float32), np.array(4096, np.float32)]
    same_as_ort("MelWeightMatrix", inputs, known=range(5))
