"""What a pass is."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from cora.ir.nodes import Program


class Pass(Protocol):
    """A step of the pipeline: a frozen dataclass whose fields are its options.

    ``apply`` takes valid IR and returns valid IR that treats every packet, at every state and configuration, as the
    program it was given: the same packets out, the same drop reasons, the same entries. Ports, configs and states are
    never changed. The first line of the class's docstring is shown to users.
    """

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def apply(self, program: Program) -> Program:
        """The program after this pass."""
        ...
