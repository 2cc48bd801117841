"""The folder ``user/`` of a built plan: the program, the runtime headers it needs, Makefile and README."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

from cora.backends.xdp.user.program import emit_user
from cora.emit.bpf import INTERFACE, interface
from cora.emit.runtime_headers import runtime_headers
from cora.ir.nodes import Program
from cora.ir.parts import Split

_FLAGS = "-std=gnu11 -pthread -Wall -Wextra -Wno-type-limits"


def user_folder(split: Split, config: Mapping[str, int], plan: str, stem: str) -> dict[str, str]:
    """Texts by path in the folder.

    Args:
        split, config, plan, stem: as `emit_user`.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what the user half does not take.
    """
    program = emit_user(split, config, plan, stem)
    headers = {f"runtime/{path}": text for path, text in runtime_headers(program).items()}
    return {f"{stem}.c": program, INTERFACE: interface(split, config), "Makefile": _makefile(stem),
            "README.md": readme(split.program, stem), **headers}


def _makefile(stem: str) -> str:
    """Recipes stand behind a tab here, which a text in this file had better not contain."""
    return _MAKEFILE.substitute(stem=stem, flags=_FLAGS).replace("\n> ", "\n\t")


_MAKEFILE = Template("""\
# The user half of $stem. Needs a C compiler, pkg-config, libbpf (1.0 or later) and jansson.
NAME = $stem
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
LIBRARIES = libbpf jansson
FLAGS = $flags -I. -Iruntime $$(shell $$(PKG_CONFIG) --cflags $$(LIBRARIES))
HEADERS = $$(wildcard *.h runtime/*.h runtime/*/*.h)

all: build/$$(NAME)-user

build/$$(NAME)-user: $$(NAME).c $$(HEADERS)
> @$$(PKG_CONFIG) --exists $$(LIBRARIES) || \\
>     { echo "libbpf or jansson is missing: apt-get install libbpf-dev libjansson-dev pkg-config"; exit 1; }
> @mkdir -p build
> $$(CC) $$(FLAGS) $$(CFLAGS) -o $$@ $$< $$(shell $$(PKG_CONFIG) --libs $$(LIBRARIES))

# The program compiles without a warning and starts.
check: all
> $$(CC) $$(FLAGS) -Werror -fsyntax-only $$(NAME).c
> build/$$(NAME)-user --help > /dev/null

clean:
> rm -rf build

.PHONY: all check clean
""")


def readme(program: Program, stem: str) -> str:
    """What the user of the program has to know: how to build, prepare interfaces, start, look at and end it."""
    ports = " ".join(f"--port {p.name}=IF{i}" for i, p in enumerate(program.ports))
    return Template("""\
# $name: the user half

`$stem.c` takes the packets that the kernel half hands on (AF_XDP, copy mode), runs the rest of the program, and sends.
It also loads the kernel half, pins its maps, and attaches it to the interfaces.

## Build
    apt-get install gcc make pkg-config libbpf-dev libjansson-dev
    make            # build/$stem-user; `make check` compiles with warnings as errors

## Prepare the interfaces
The function is a bump in the wire: frames keep their Ethernet addresses. Each port is one interface, without an IP
address.

* The BPF file system, once after boot: `mount -t bpf bpf /sys/fs/bpf`
* Up, and in promiscuous mode where frames are for other addresses: `ip link set dev IF up promisc on`
* No frames put together by the card: `ethtool -K IF lro off gro off rx-gro-hw off`
* No frames with unfinished checksums. They come from a sender on the same machine: the other end of a veth pair, a
  virtual machine behind a tap. The function sees the checksum that is in the frame, and it is not there yet:
  `ethtool -K PEER tx off tso off gso off` at that sender. Frames from a cable are finished.
* A veth takes forwarded frames only where its peer polls: `ethtool -K PEER gro on`, or an XDP program on the peer.
* MTUs of all ports alike, at most 3822. What is longer than the other port's MTU is dropped and counted
  (`longer_than_mtu`); the function fragments nothing.
* Queues: every receive queue of every port gets a socket. `ethtool -L IF combined 1` makes it one.

## Start and end
    build/$stem-user $ports

Root is needed (CAP_BPF, CAP_NET_ADMIN, CAP_IPC_LOCK). `--help` lists the options. SIGTERM or SIGINT end it: the kernel
half is detached, packets on their way are served, lent entries come back, the totals are printed as one JSON object,
the pins are removed.

Killed otherwise, the kernel half stays on the interfaces and forwards what it can decide alone; what it would hand on
is dropped and counted (`kernel_faults`, `no user half`). Started again, the user half takes the pinned maps, the
kernel's entries and all counts with it, and says on its standard error what is lost: entries that were in user space
only, held fragments, packets that waited for it. `--fresh` forgets all that; `rm -r
/sys/fs/bpf/cora/$stem` unloads everything. (`cora run` pins under the name of the run.)

When the kernel half is detached from an interface, or an interface goes away, the user half says so and ends with exit
code 1 and its totals.

## What the totals say
`arrived`, `forwarded` by port, `dropped` by reason and `held` are of the whole function. `lending` says what the halves
told each other. `halves` is what got lost between and around them, and is zero on a quiet machine:

| count | what happened | what to do |
|---|---|---|
| `punt_queue_full` | the kernel half handed packets on faster than this program takes them | `--ring` larger |
| `transmit_queue_full`, `refused_by_driver` | the interface sends slower than packets come | |
| `longer_than_mtu` | the frame does not fit the port it should leave by | same MTU on all ports |
| `stray` | the header before a packet cannot be of this program | one plan for both halves |
| `no user half` | the kernel half had nobody to hand packets on to | start this program |
| `abandoned` | a killed user half had not served them | |
| `paused` | came while whole states of the kernel half were replaced (`cora state load`), and are not in `arrived` | |
""").substitute(name=program.name, stem=stem, ports=ports)
