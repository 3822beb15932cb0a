# SPDX-License-Identifier: Apache-2.0
"""Texts of PYTORCH_CUDA_ALLOC_CONF: what PyTorch 2.11 makes of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memc.estimation.alloc_conf import parse_alloc_conf
from memc.estimation.allocators import MIB, Caching
from memc.ir.errors import UnsupportedError, UsageError

D = Caching()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", D),
        ("max_split_size_mb:20", replace(D, max_split=20 * MIB)),
        (" max_split_size_mb : 64 ,", replace(D, max_split=64 * MIB)),
        ("max_split_size_mb:30,max_split_size_mb:40", replace(D, max_split=40 * MIB)),
        ("large_segment_size_mb:11", replace(D, large_segment=11 * MIB, max_non_split_rounding=11 * MIB)),
        (
            "max_split_size_mb:15,large_segment_size_mb:12",
            replace(D, large_segment=12 * MIB, max_non_split_rounding=12 * MIB, max_split=15 * MIB),
        ),
        ("max_non_split_rounding_mb:21", replace(D, max_non_split_rounding=21 * MIB)),
        ("garbage_collection_threshold:0.5", replace(D, garbage_collection_threshold=0.5)),
        ("expandable_segments:True", replace(D, expandable_segments=True)),
        ("expandable_segments:True,expandable_segments:False", D),
        ("per_process_memory_fraction:0.5", replace(D, memory_fraction=0.5)),
        ("per_process_memory_fraction:0", replace(D, memory_fraction=0.0)),
        ("per_process_memory_fraction:1.0", D),
        ("roundup_power2_divisions:4", replace(D, divisions=(4,) * 16)),
        ("roundup_power2_divisions:[]", D),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", replace(D, divisions=(1,) * 9 + (2, 4) + (8,) * 5)),
        ("roundup_power2_divisions:[64:8,256:4]", replace(D, divisions=(8,) * 7 + (0, 4) + (0,) * 7)),
        ("roundup_power2_divisions:[131072:4,>:2]", replace(D, divisions=(4,) * 16)),
        ("roundup_power2_divisions:[>:2]", replace(D, divisions=(0,) + (2,) * 15)),
        ("roundup_power2_divisions:[256:2,64:8]", replace(D, divisions=(2,) * 6 + (8, 2, 2) + (0,) * 7)),
        ("backend:native,release_lock_on_cudamalloc:True,pinned_num_register_threads:8", D),
    ],
)
def test_settings(text: str, expected: Caching) -> None:
    """Seen with `c10::CachingAllocator::setAllocatorSettings` of the release's own library."""
    assert parse_alloc_conf(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:19", "max_split_size_mb: expected megabytes from 20 on, got '19'"),
        ("max_split_size_mb:30,large_segment_size_mb:60", "max_split_size_mb: expected megabytes from 60 on, got '30'"),
        ("max_non_split_rounding_mb:1", "max_non_split_rounding_mb: expected megabytes from 20 on, got '1'"),
        ("large_segment_size_mb:10", "large_segment_size_mb: expected megabytes from 11 on, got '10'"),
        ("max_split_size_mb:abc", "expected megabytes from 20 on, got 'abc'"),
        ("garbage_collection_threshold:1", "expected a share above 0 and below 1, got '1'"),
        ("garbage_collection_threshold:nan", "expected a share above 0 and below 1, got 'nan'"),
        ("per_process_memory_fraction:1.5", "expected a share from 0 to 1, got '1.5'"),
        ("expandable_segments:true", "expected True or False, got 'true'"),
        ("roundup_power2_divisions:3", "expected divisions that are a power of two, got '3'"),
        ("roundup_power2_divisions:[256:3]", "expected divisions that are a power of two or 0, got '3'"),
        ("roundup_power2_divisions:[3:4]", "expected sizes in megabytes that are a power of two, got '3'"),
        ("roundup_power2_divisions:[4]", "expected SIZE:DIVISIONS between commas, got '4'"),
        ("roundup_power2_divisions:[256:1", "expected ] after the list"),
        ("backend:foo", "backend: expected native, got 'foo'"),
        ("max_split_size:64", "has no allocator setting 'max_split_size'; did you mean max_split_size_mb?"),
        ("foo:1", "has no allocator setting 'foo'; there are: backend, expandable_segments"),
        ("max_split_size_mb", "expected KEY:VALUE,..., got 'max_split_size_mb'"),
        ("max_split_size_mb:", "expected KEY:VALUE,..., got"),
        (",max_split_size_mb:64", "expected KEY:VALUE,..., got"),
        ("max_split_size_mb:64:5", "expected a comma after 'max_split_size_mb', got ':'"),
        ("max_split_size_mb:[64]", "expected a number of megabytes, got a list"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_alloc_conf(text)
    assert (
        message in str(error.value) and "\n" not in str(error.value) and str(error.value).startswith("--alloc-conf: ")
    )


def test_another_backend_is_not_simulated() -> None:
    with pytest.raises(UnsupportedError, match="cudaMallocAsync: expected native"):
        parse_alloc_conf("backend:cudaMallocAsync")
