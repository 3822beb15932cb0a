# SPDX-License-Identifier: Apache-2.0
"""When streams have waited for each other, so that one may use the bytes of another."""

from __future__ import annotations

from collections.abc import Sequence

from .watched import StreamWait


class StreamOrder:
    """The waits of a step that follows itself, as those of the steps are the same.

    A wait counts for what ended before its event was recorded. What ended since the same request is not known to be before it.
    """

    def __init__(self, requests: int, waits: Sequence[StreamWait]) -> None:
        unrolled = [
            StreamWait(wait.recorded + shift, wait.source, wait.waited + shift, wait.target)
            for shift in (0, requests, 2 * requests)
            for wait in waits
        ]
        self._requests = requests
        self._waits = sorted(unrolled, key=lambda wait: wait.waited)
        self._known: dict[tuple[int, int], dict[int, int]] = {}

    def passed(self, stream: int, moment: int) -> dict[int, int]:
        """By stream: from which moment on it runs after all that `stream` was given until `moment`; itself from there on.

        A stream that does not wait within two steps is left out.
        """
        shift = moment - moment % self._requests if self._requests else 0
        key = (stream, moment - shift)
        if key not in self._known:
            after = {stream: moment - shift}
            for wait in self._waits:
                if wait.source in after and wait.recorded > after[wait.source]:
                    after[wait.target] = min(after.get(wait.target, wait.waited), wait.waited)
            self._known[key] = after
        return {name: at + shift for name, at in self._known[key].items()}

    def follows(self, stream: int, freed: int, other: int, moment: int) -> bool:
        """Whether what `other` is given from `moment` on runs after what `stream` was given until `freed`."""
        return self.passed(stream, freed).get(other, moment + 1) <= moment
