"""The ways of a path's packets through the graph of an instance: those that find their entry lent, and the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from cora.analysis.prefixes import Edge, FastPath, lent_outcome
from cora.analysis.profile import PathUse
from cora.ir.nodes import successors
from cora.partition.instance import Instance

# Nodes by number, each with the edge it is reached by; the first one has none.
Walk = Sequence[tuple[int, Edge | None]]


class Steps(Protocol):
    """What a path is here: labels of its blocks, and the outcome taken at each but the last."""

    @property
    def blocks(self) -> tuple[str, ...]: ...

    @property
    def outcomes(self) -> tuple[str, ...]: ...


class Walks:
    """Follows paths through an instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.edges = {(e.source, e.outcome): e for e in instance.graph.edges}

    def of(self, path: PathUse) -> list[tuple[int, Walk]]:
        """How many packets of a path go which way; ways without packets are left out."""
        fast = self.fast(path)
        served = 0 if fast is None else fast.packets
        found: list[tuple[int, Walk]] = []
        if served and fast is not None:
            found.append((served, self.walk(path, fast)))
        if path.packets > served:
            found.append((path.packets - served, self.walk(path)))
        return found

    def fast(self, path: PathUse) -> FastPath | None:
        """How packets of a path find their entry lent, if they may."""
        split = self.instance.variant.split
        return None if split is None else split.paths.get(path.id)

    def walk(self, path: Steps, fast: FastPath | None = None) -> Walk:
        """The nodes a packet takes that finds its entry lent as ``fast`` says, or that finds none."""
        return tuple(self._walk(path, fast))

    def _walk(self, path: Steps, fast: FastPath | None) -> Iterator[tuple[int, Edge | None]]:
        at, edge = 0, None
        position = 0
        while True:
            yield at, edge
            piece = self.instance.graph.nodes[at].piece
            if fast is None and (at, "restart") in self.edges:
                edge = self.edges[at, "restart"]
            elif not piece.last:
                edge = self.edges[at, "next"]
            elif not successors(piece.block.terminator):
                return
            else:
                edge = self._onward(path, at, position, fast)
                position += edge.outcome != "owner"
            at = edge.target

    def _onward(self, path: Steps, at: int, position: int, fast: FastPath | None) -> Edge:
        """The edge out of a block's last part at a position of the path."""
        outcome = path.outcomes[position]
        found = lent_outcome(self.instance.graph.nodes[at].piece.block.terminator, outcome)
        stays = fast is not None and (fast.owner_from is None or fast.owner_from[0] != position)
        if stays and (at, found) in self.edges:
            return self.edges[at, found]
        return self.edges.get((at, "owner")) or self.edges[at, outcome]
