# SPDX-License-Identifier: Apache-2.0
"""What is told of work that goes on."""

from __future__ import annotations

import threading

from memc.ir.progress import Reached, listener, listening, tell


def test_words() -> None:
    assert str(Reached("order")) == "order: begun"
    assert str(Reached("kernels", 0.5)) == "kernels: 50 %"
    assert str(Reached("addresses", 1.0, 2048, 1024, 3.4)) == (
        "addresses: 99 %, 2.00 KiB so far, 1.00 KiB at least, 3 s left"
    )


def test_who_listens() -> None:
    outer: list[Reached] = []
    inner: list[Reached] = []
    tell(Reached("nobody"))
    with listening(outer.append):
        tell(Reached("a"))
        with listening(inner.append):
            tell(Reached("b"))
        with listening(None):
            tell(Reached("c"))
        tell(Reached("d"))
    assert listener() is None
    assert [each.work for each in outer] == ["a", "d"] and [each.work for each in inner] == ["b"]


def test_other_threads_tell_nobody() -> None:
    heard: list[Reached] = []
    with listening(heard.append):
        thread = threading.Thread(target=tell, args=(Reached("elsewhere"),))
        thread.start()
        thread.join()
    assert heard == []
