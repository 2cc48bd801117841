"""The folder of the kernel half in a built tree: its program, what it shares with the user half, Makefile, README."""

from __future__ import annotations

from cora.analysis.accesses import components_of
from cora.backends.xdp.kernel_build import FLAGS, STRONG_ORDER, checked
from cora.build.request import BuildRequest
from cora.build.tree import SourceTree
from cora.emit.bpf import INTERFACE, KERNEL, emit_kernel, file_stem, row_size, sweep_every
from cora.emit.layout import Row, map_row, meter_row
from cora.emit.runtime_headers import runtime_headers
from cora.ir.nodes import AclState, CounterState, LpmState, MapState, MeterState, PoolState, State, reasons_of
from cora.ir.parts import Part, Split


def kernel_tree(request: BuildRequest) -> SourceTree:
    """The files of ``kernel/``.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE` for what the kernel cannot hold or run.
    """
    split = checked(request.split)
    place = split.parts[KERNEL].place
    sources = emit_kernel(split, request.config)
    headers = runtime_headers("\n".join(sources.values()))
    files = {**sources, "Makefile": _makefile(split), "README.md": _readme(split),
             **{f"runtime/{path}": text for path, text in headers.items()}}
    return SourceTree(files).under(place)


_MAKEFILE = """\
# The kernel half: build/{stem}.bpf.o, which the user half loads.
# all: compile; check: compile without an object file; verify: ask this kernel's verifier (root); clean.
CLANG ?= clang
BPFTOOL ?= bpftool
FLAGS := -target bpf {flags} -I. -Iruntime
FLAGS += $(if $(filter x86_64,$(shell uname -m)),{strong})
# Debian keeps the kernel's headers of a machine in a folder that a compiler for BPF does not look into by itself.
FLAGS += $(addprefix -I,$(wildcard /usr/include/$(shell uname -m)-linux-gnu))
SOURCES := {stem}.bpf.c {interface} $(wildcard runtime/*.h runtime/bpf/*.h)

.PHONY: all check verify clean
all: build/{stem}.bpf.o

build/{stem}.bpf.o: $(SOURCES)
\t@mkdir -p build
\t$(CLANG) $(FLAGS) -c $< -o $@

check:
\t$(CLANG) $(FLAGS) -fsyntax-only {stem}.bpf.c

verify: all
\t@mkdir -p build
\t$(BPFTOOL) prog loadall build/{stem}.bpf.o /sys/fs/bpf/{stem}-verify
\trm -r /sys/fs/bpf/{stem}-verify

clean:
\trm -rf build
"""


def _makefile(split: Split) -> str:
    return _MAKEFILE.format(stem=file_stem(split), flags=" ".join(FLAGS), interface=INTERFACE,
                            strong=STRONG_ORDER)


_README = """\
# {name}: the kernel half

`{stem}.bpf.c` is one XDP program for the interfaces of all ports, and programs that user space runs on it. The comments
with file and line say which line of the source a statement comes from. `runtime/bpf/abi.h` says what the two halves
share.

## Build and load
```sh
make                    # build/{stem}.bpf.o; needs clang and libbpf-dev
make verify             # root: asks this kernel's verifier
```
The user half loads the object, fills the maps below, and attaches `cora_xdp` to every port. By hand, as root:
```sh
mkdir /sys/fs/bpf/{stem}
bpftool prog loadall build/{stem}.bpf.o /sys/fs/bpf/{stem} pinmaps /sys/fs/bpf/{stem}
ip link set dev INTERFACE xdp pinned /sys/fs/bpf/{stem}/cora_xdp      # each port
ip link set dev INTERFACE xdp off ; rm -r /sys/fs/bpf/{stem}          # and off again
```
Before packets come: `shared.seed` gets random numbers, `shared.ifindex` and `cora_devices` the ports' interfaces, in
the order {ports}. Without a user half (`shared.attached` is 0) packets for it are dropped and counted.

## Tables
{states}

`cora_dump` and `cora_load` (`bpf_prog_test_run` with a `struct cora_rows_call`) hand rows over in `cora_rows`. {rows}

## What is counted
`cora_counts`, for each CPU: packets that arrived, that left by port, that were dropped by reason, and that ended for no
reason of the program (`enum cora_kernel_fault`). Reasons by number: {reasons}.

{sweep}
"""


def _readme(split: Split) -> str:
    program, part = split.program, split.parts[KERNEL]
    ports = ", ".join(f"{i} `{p.name}`" for i, p in enumerate(program.ports))
    reasons = ", ".join(f"{i} `{r}`" for i, r in enumerate(reasons_of(program))) or "none"
    every = sweep_every(split)
    sweep = (f"`cora_sweep` is to be run at least every {every / 1e9:g} s: it removes entries that are due."
             if every else "Nothing here is due by itself: `cora_sweep` has nothing to do.")
    layouts = [_layout(s) for s in part.program.states if isinstance(s, MapState | MeterState)]
    rows = "Numbers are in this machine's byte order, without padding.\n\n" + "\n".join(layouts) if layouts else ""
    return _README.format(name=program.name, stem=file_stem(split), ports=ports, reasons=reasons, sweep=sweep,
                          states=_states(split, part), rows=rows.strip() or "There are none.")


def _states(split: Split, part: Part) -> str:
    if not part.program.states:
        return "There are none in the kernel."
    kinds = {MapState: "map", MeterState: "meter", PoolState: "pool", CounterState: "counter", AclState: "acl",
             LpmState: "lpm"}
    lines = ["| number | state | kind | how | entries | bytes of a row |", "| --- | --- | --- | --- | --- | --- |"]
    for i, state in enumerate(part.program.states):
        row = row_size(split, state.name) if isinstance(state, MapState | MeterState) else _plain_row(state)
        lines.append(f"| {i} | `{state.name}` | {kinds.get(type(state), 'state')} | {_how(split, part, state)} | "
                     f"{_entries(split, part, state):,} | {row or ''} |")
    return "\n".join(lines)


def _plain_row(state: State) -> int:
    return 16 if isinstance(state, CounterState) else 8 if isinstance(state, PoolState) else 0


def _how(split: Split, part: Part, state: State) -> str:
    role = part.roles[state.name]
    if role != "lent":
        return {"whole": "only here", "copy": "also elsewhere"}.get(role, role)
    component = components_of(split.program)[state.name]
    return f"entries lent by user space ({component})"


def _entries(split: Split, part: Part, state: State) -> int:
    if part.roles[state.name] == "lent":
        return next(item.entries for item in split.lendings if item.state == state.name)
    if isinstance(state, PoolState | CounterState):
        return state.size
    if isinstance(state, AclState | LpmState):
        return len(state.entries)
    return state.capacity


def _layout(state: MapState | MeterState) -> str:
    row: Row = map_row(state) if isinstance(state, MapState) else meter_row(state)
    fields = ", ".join(f"{f.name.removeprefix('#')} {f.offset}+{f.size}" for f in row.fields)
    return f"* `{state.name}` (offset+bytes): {fields}"
