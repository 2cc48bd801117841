"""Runs the kernel half in this machine's kernel, packet by packet in virtual time, the user half in this process.

The kernel half is a place of the in-process execution of split programs (cora/emit/runtime/bpf/test_place.h): packets
go through BPF_PROG_TEST_RUN, messages through its program `cora_told`. So all schedules of `cora.engine.split` run it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cora.backends.xdp.kernel_build import checked, compile_kernel, verifier_error
from cora.emit.bpf import INTERFACE, KERNEL, interface, row_size
from cora.emit.bpf_table import LONG
from cora.emit.dialect import Lines
from cora.emit.names import comment
from cora.emit.part import common_defines, emit_split
from cora.engine.native import Records, file_name_of
from cora.engine.split import SplitEngine, split_library
from cora.errors import Kind, fail
from cora.ir.nodes import CounterState, MapState, MeterState, PoolState
from cora.ir.parts import Split

_FLAGS = ("-std=gnu11", "-O1")
_LOG_BYTES = 1 << 20
# BPF_PROG_TEST_RUN takes an Ethernet header at least, and at most what fits a page beside head and tail room.
SHORTEST, LONGEST = 14, 3400


class KernelEngine(SplitEngine):
    """A split program whose first place is this machine's kernel.

    Frames are whole, of `SHORTEST` to `LONGEST` bytes.
    """

    WHOLE: ClassVar[bool] = True
    TAKEN: ClassVar[str] = f"whole frames of {SHORTEST} to {LONGEST} bytes"

    def __init__(self, split: Split, *arguments: Any, **options: Any) -> None:
        """As `SplitEngine`, of the parts as they are built.

        Raises:
            CoraError: as `SplitEngine`; `Kind.NOT_BUILDABLE` for what the kernel cannot run; `Kind.VERIFIER`.
        """
        super().__init__(checked(split), *arguments, **options)

    def _compiled(self, fault: str, *, march_native: bool) -> Any:
        if fault != "sound":
            raise ValueError("faults are built into the places of this process only")
        files = {**emit_split(self.split), "place0.c": _test_place(self.split), INTERFACE: interface(self.split)}
        native = ["-march=native"] if march_native else []
        flags = [*_FLAGS, f"-DCORA_PLACES={len(self.split.parts)}", *native, "-lbpf"]
        library = split_library(f"{file_name_of(self.program)}-kernel", files, flags)
        library.cora_kernel_open.restype = ctypes.c_bool
        library.cora_kernel_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        log = ctypes.create_string_buffer(_LOG_BYTES)
        if not library.cora_kernel_open(str(compile_kernel(self.split)).encode(), log, _LOG_BYTES):
            raise verifier_error(self.split, log.value.decode(errors="replace"))
        return library

    def _advance(self, records: Records, output: str) -> None:
        self._whole(records)
        super()._advance(records, output)

    @classmethod
    def takes(cls, records: Records) -> NDArray[np.bool_]:
        """[N] whether a packet is a whole frame that a test run of the kernel takes."""
        lengths = records.view("=u4").reshape(len(records), -1)
        captured, full = lengths[:, 4], lengths[:, 5]
        fits: NDArray[np.bool_] = (captured == full) & (captured >= SHORTEST) & (captured <= LONGEST)
        return fits

    def _whole(self, records: Records) -> None:
        if int(records.view("=u8").reshape(len(records), -1)[:, 0].max(initial=0)) >= LONG:
            raise fail(Kind.ENGINE_LIMIT, "the kernel half stamps packets with times below 2^62 nanoseconds only",
                       span=self.program.span, hint="verify with the in-process engine")
        if not self.takes(records).all():
            raise fail(Kind.ENGINE_LIMIT, f"the kernel runs whole frames of {SHORTEST} to {LONGEST} bytes only, and "
                       "there are others", span=self.program.span,
                       hint="capture whole frames (tcpdump -s 0), or verify with the in-process engine")


def _test_place(split: Split) -> str:
    states = split.parts[KERNEL].program.states
    lines: Lines = [
        f"/* {comment(split.program.name)}: the kernel half in an in-process execution */",
        *common_defines(split), "#define CORA_TRACKERS 0", "#define CORA_LATER 0",
        f"#define CORA_STATES {len(states)}", "",
        f'#include "{INTERFACE}"', "",
        f"static const uint32_t cora_row_sizes[] = {{{', '.join(str(_row(split, s)) for s in states) or '0'}}};", "",
        '#include "bpf/test_place.h"',
    ]
    return "\n".join(lines) + "\n"


def _row(split: Split, state: object) -> int:
    """Bytes of one of the rows that cora_dump counts."""
    if isinstance(state, MapState | MeterState):
        return row_size(split, state.name)
    return 16 if isinstance(state, CounterState) else 8 if isinstance(state, PoolState) else 0


def whole_frames(frames: Iterable[tuple[int, int]]) -> bool:
    """Whether the kernel can run frames of these captured and full lengths."""
    return all(a == b and SHORTEST <= a <= LONGEST for a, b in frames)
