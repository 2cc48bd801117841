"""The reference interpreter: what a program means, in plain Python over the IR (docs/semantics.md)."""

from cora.engine.reference.interpreter import Reference, TraceStep
from cora.engine.reference.packet import Sum

__all__ = ["Reference", "Sum", "TraceStep"]
