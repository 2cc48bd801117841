"""Frame numbers: the place of a packet in its file, counted from 1 as packet analysers count."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cora.frontends.traffic.capture import SourceWrapper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cora.frontends.traffic.capture import Batch, Packet, TrafficSource


class Numbered(SourceWrapper):
    """A traffic source that writes each packet's frame number (modulo 2**32) into ``reserved`` of its record."""

    def __init__(self, source: TrafficSource) -> None:
        """Number the packets of ``source``, which must be the file itself: nothing left out yet."""
        super().__init__(source)

    def batches(self, size: int = 8192) -> Iterator[Batch]:
        """The batches of the source, numbered."""
        done = 0
        for batch in self._source.batches(size):
            batch["reserved"] = np.arange(done + 1, done + 1 + len(batch), dtype=np.uint64).astype(np.uint32)
            done += len(batch)
            yield batch

    def packets(self) -> Iterator[Packet]:
        """The packets one by one; they carry no number."""
        return self._source.packets()


class FrameNumbers:
    """Frame numbers of the packets of a run, by packet number; a few bytes per batch where no packet is left out."""

    def __init__(self) -> None:
        """Start before all packets."""
        self._bases: list[int] = []
        self._frames: list[NDArray[np.uint32] | int] = []
        self.packets = 0

    def take(self, batch: Batch) -> Batch:
        """Remember a batch that `Numbered` made, before it runs."""
        frames = batch["reserved"]
        self._bases.append(self.packets)
        whole = int(frames[-1]) - int(frames[0]) == len(frames) - 1
        self._frames.append(int(frames[0]) if whole else frames.copy())
        self.packets += len(batch)
        return batch

    def of(self, packet: int) -> int:
        """The frame number of a packet of a batch taken so far."""
        at = bisect_right(self._bases, packet) - 1
        frames, offset = self._frames[at], packet - self._bases[at]
        return frames + offset if isinstance(frames, int) else int(frames[offset])
