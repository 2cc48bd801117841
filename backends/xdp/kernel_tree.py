"""The folder ``kernel/`` of a built plan: the XDP program, the runtime headers it needs, Makefile and README."""

from __future__ import annotations

from string import Template

from cora.backends.xdp.kernel_build import FLAGS
from cora.emit.bpf import INTERFACE, KERNEL, emit_kernel, file_stem, sweep_every
from cora.emit.runtime_headers import runtime_headers
from cora.ir.nodes import CounterState, MapState, MeterState
from cora.ir.parts import Split

# What abi.h includes and the kernel program itself does not: the same for both halves.
_ABI = '#include "bpf/abi.h"\n'


def kernel_folder(split: Split) -> dict[str, str]:
    """Texts by path in the folder.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE` for what the kernel cannot run; the planner is told so before.
    """
    files = emit_kernel(split)
    headers = runtime_headers("\n".join(files.values()) + _ABI)
    return {**files, "Makefile": _MAKEFILE.substitute(stem=file_stem(split), flags=" ".join(FLAGS),
                                                      interface=INTERFACE).replace("\n> ", "\n\t"),
            "README.md": readme(split), **{f"runtime/{path}": text for path, text in headers.items()}}


_MAKEFILE = Template("""\
# The kernel half of $stem. Needs clang 11 or later with its BPF target, and the headers of libbpf.
NAME = $stem
CLANG ?= clang
# Debian keeps the kernel's headers of a machine (asm/types.h) where a compiler for BPF does not look.
MULTIARCH := $$(wildcard /usr/include/$$(shell uname -m)-linux-gnu)
FLAGS = -target bpf $flags -I. -Iruntime $$(addprefix -I,$$(MULTIARCH))

all check: build/$$(NAME).bpf.o

build/$$(NAME).bpf.o: $$(NAME).bpf.c $interface $$(wildcard runtime/*.h runtime/*/*.h)
> @mkdir -p build
> $$(CLANG) $$(FLAGS) -c -o $$@ $$<

clean:
> rm -rf build

.PHONY: all check clean
""")


def readme(split: Split) -> str:
    """How to build and load the program, and how to read its state and counters."""
    stem, part = file_stem(split), split.parts[KERNEL]
    roles = [f"| {i} | `{s.name}` | {_kind(s)} | {part.roles[s.name]} |" for i, s in enumerate(part.program.states)]
    states = "\n".join(["| number | state | kind | role |", "|---|---|---|---|", *roles]) if roles else \
        "The kernel half keeps no state."
    every = sweep_every(split)
    sweeps = (f"Entries expire when `cora_sweep` runs: at least every {every / 1e9:.3f} s." if every else
              "No entry of the kernel half expires by itself.")
    return _README.substitute(name=split.program.name, stem=stem, states=states, sweeps=sweeps, interface=INTERFACE)


def _kind(state: object) -> str:
    named = {MapState: "map", MeterState: "meter", CounterState: "counter"}
    return named.get(type(state), type(state).__name__.removesuffix("State").lower())


_README = Template("""\
# $name: the kernel half

`$stem.bpf.c` is one XDP program for all ports. Blocks keep the names of the plan, and comments give the lines of the
source. It ends packets that it can decide, and hands on all others to the user half with a header before the frame
(`runtime/wire.h`).

## Build
    apt-get install clang libbpf-dev make
    make            # build/$stem.bpf.o

## Load and unload
The user half does it (`../user/README.md`): it loads this file, fills the devices, attaches the program to the
interface of every port, and pins maps and links. By hand, to see what the verifier says:

    bpftool prog loadall build/$stem.bpf.o /sys/fs/bpf/$stem-try && rm -r /sys/fs/bpf/$stem-try

`rm -r` of the folder with the pins unloads everything.

## What both halves share
`runtime/bpf/abi.h` describes maps and programs, `$interface` the numbers of this program.

| name | what it is |
|---|---|
| `cora_xdp` | the XDP program |
| `cora_told` | takes a message of the owner: lend, change, take back an entry |
| `cora_sweep` | removes what is due |
| `cora_dump`, `cora_load` | read and write rows of a state, by its number below |
| `cora_counts` | per CPU: packets that arrived, left, were dropped for each reason, were lost |

$states

$sweeps
""")
