"""A plan for the host alone as a DPDK program: one C file over the headers in cora/emit/runtime, Makefile, README."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

from cora.analysis.sharding import Anchor, analysis_of
from cora.build.request import BuildRequest, file_stem
from cora.build.tree import SourceTree
from cora.emit.described import config_row_of, keeps_original, names_of, states_of, text_literal
from cora.emit.dialect import Lines
from cora.emit.runtime_headers import runtime_headers
from cora.emit.sharded import ShardedProgram, emit_sharded
from cora.errors import Kind, fail
from cora.ir import nodes
from cora.ir.nodes import Program

PLACE = "host"
FLAGS = "-std=gnu11 -Wall -Wextra -Wno-type-limits"
# By benchmarks/native_engine.py: the passes switched off cost compile time and made the code slower.
OPTIMISE = "-O2 -g -fno-tree-pre -fno-gcse -fno-schedule-insns2"


def build(request: BuildRequest) -> SourceTree:
    """The folder ``host/`` of a plan without a NIC.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE` where the plan has other places; `Kind.ENGINE_LIMIT` for what the engine does
            not take.
    """
    if len(request.split.parts) != 1:
        places = ", ".join(p.place for p in request.split.parts)
        raise fail(Kind.NOT_BUILDABLE, f"a host program has one place, and this plan has {places}", where="PLAN",
                   hint="plan with `--nic host`")
    stem = file_stem(request)
    host, text = program_text(request.program, request.config, request.plan.digest(), stem)
    headers = {f"runtime/{path}": content for path, content in runtime_headers(text).items()}
    return SourceTree({f"{stem}.c": text, "Makefile": _makefile(stem), "README.md": readme(host, stem), **headers}
                      ).under(PLACE)


def program_text(program: Program, config: Mapping[str, int], plan: str, stem: str) -> tuple[ShardedProgram, str]:
    """The C file, and what is known of it. ``plan``: digest of the plan."""
    host, text = emit_sharded(program)
    before = [
        "#define CORA_SHARDS", "#define CORA_LIVE", f"#define CORA_NAME {text_literal(stem)}",
        f"#define CORA_PLAN {text_literal(plan)}",
        f"#define CORA_KEEPS_ORIGINAL {int(keeps_original(program))}",
        f"#define CORA_POOLS {sum(isinstance(s, nodes.PoolState) for s in program.states)}",
        f"#define CORA_ONE_CORE {text_literal(host.one_core)}", "", "#include <rte_ethdev.h>", ""]
    after = [*names_of(program), *config_row_of(program, config), *states_of(program, host.dialect), *_rss(host),
             '#include "dpdk/run.h"']
    return host, "\n".join(before) + "\n" + text + "\n" + "\n".join(after) + "\n"


# What a card can lead packets by.

_BOTH_ENDS = frozenset({"src", "dst"})
_PORTS = frozenset({"sport", "dport"})
_RSS_JOIN = " |\n        "
_ONLY = {"src": "RTE_ETH_RSS_L3_SRC_ONLY", "dst": "RTE_ETH_RSS_L3_DST_ONLY"}


def _rss(host: ShardedProgram) -> Lines:
    """Per port the fields that a card should hash, in DPDK's words; 0: it cannot."""
    rows = [f"    /* {p.name} */ {_RSS_JOIN.join(sorted(_fields(host, i))) or '0'},"
            for i, p in enumerate(host.program.ports)]
    return ["/* What a card that can is told to hash, by port. Software checks every packet's core in any case. */",
            "static const uint64_t cora_rss_fields[] = {", *rows, "};", ""]


def _fields(host: ShardedProgram, port: int) -> frozenset[str]:
    name = host.program.ports[port].name
    found: set[str] = set()
    for anchor, by in _anchors(host):
        if name not in anchor.ports:
            continue
        fields = frozenset(_steered(host, anchor)) if by == "home" else _BOTH_ENDS | _PORTS
        found |= _hashed(anchor.headers[0], fields)
    return frozenset(found)


def _anchors(host: ShardedProgram) -> list[tuple[Anchor, str]]:
    """Anchors of packets with TCP or UDP that are led by their own headers, and how they are led."""
    analysis = analysis_of(host.program)
    points = {p.block.label: host.led[p.number].by for p in host.points}
    return [(a, points[a.block]) for c in analysis.components.values() for a in c.anchors.values()
            if not a.quoted and a.headers[1] in ("l4", "") and points.get(a.block) in ("home", "owner")]


def _steered(host: ShardedProgram, anchor: Anchor) -> list[str]:
    wanted = host.dialect.homes.fields[anchor.state]
    return [p.field for f, p in zip(anchor.fields, anchor.parts, strict=True) if f in wanted and p.header]


def _hashed(network: str, fields: frozenset[str]) -> frozenset[str]:
    family = {"ipv4": "IPV4", "ipv6": "IPV6"}.get(network)
    if family is None:
        return frozenset()
    if fields == _BOTH_ENDS | _PORTS:
        return frozenset({f"RTE_ETH_RSS_NONFRAG_{family}_TCP", f"RTE_ETH_RSS_NONFRAG_{family}_UDP"})
    if fields == _BOTH_ENDS:
        return frozenset({f"RTE_ETH_RSS_{family}"})
    if len(fields) == 1 and fields < _BOTH_ENDS:
        return frozenset({f"RTE_ETH_RSS_{family}", _ONLY[next(iter(fields))]})
    return frozenset()


def _makefile(stem: str) -> str:
    """Recipes stand behind a tab here, which a text in this file had better not contain."""
    return _MAKEFILE.substitute(stem=stem, flags=FLAGS, optimise=OPTIMISE).replace("\n> ", "\n\t")


_MAKEFILE = Template("""\
# The host program of $stem. Needs a C compiler, pkg-config, DPDK (22.11) and jansson.
NAME = $stem
CFLAGS ?= $optimise
PKG_CONFIG ?= pkg-config
LIBRARIES = libdpdk jansson
FLAGS = $flags -Iruntime $$(shell $$(PKG_CONFIG) --cflags $$(LIBRARIES))
HEADERS = $$(wildcard runtime/*.h runtime/*/*.h)

all: build/$$(NAME)-host

build/$$(NAME)-host: $$(NAME).c $$(HEADERS)
> @$$(PKG_CONFIG) --exists $$(LIBRARIES) || \\
>     { echo "DPDK or jansson is missing: apt-get install libdpdk-dev libjansson-dev pkg-config"; exit 1; }
> @mkdir -p build
> $$(CC) $$(FLAGS) $$(CFLAGS) -o $$@ $$< $$(shell $$(PKG_CONFIG) --libs $$(LIBRARIES)) -pthread

# The program compiles without a warning.
check: all
> $$(CC) $$(FLAGS) $$(CFLAGS) -Werror -fsyntax-only $$(NAME).c

clean:
> rm -rf build

.PHONY: all check clean
""")


def readme(host: ShardedProgram, stem: str) -> str:
    """What the user of the program has to know: build, devices, start, tables and counters, cores, end."""
    program = host.program
    devices = " ".join(f"--port {p.name}={i}" for i, p in enumerate(program.ports))
    pcap = " ".join(f"--vdev=net_pcap{i},rx_pcap={p.name}-in.pcap,tx_pcap={p.name}-out.pcap"
                    for i, p in enumerate(program.ports))
    return _README.substitute(name=program.name, stem=stem, devices=devices, pcap=pcap, cores=_cores(host))


def _cores(host: ShardedProgram) -> str:
    """How the cores divide the work, by access."""
    if host.one_core:
        return f"This program runs on one core: {host.one_core}."
    says = {"home": "a core by a hash of the key", "owner": "the core that has the pool value's entry",
            "alone": "no core: these packets run alone"}
    rows = []
    for point in host.points:
        led, node = host.led[point.number], point.block.terminator
        assert isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police | nodes.TrackFragment)
        rows.append(f"| {node.span.line} | {node.mnemonic.replace('_', ' ')} `{node.state}` | {says[led.by]} "
                    f"| {led.reason} |")
    if not rows:
        return "Packets meet no state that changes: any core runs any packet."
    head = ["| line | first access | led to | why |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *dict.fromkeys(rows)])


_README = Template("""\
# $name: the host program

`$stem.c` is a DPDK program. It runs the whole function on the cores it is given and divides the state between them.

## Build
    apt-get install gcc make pkg-config libjansson-dev
    apt-get install --no-install-recommends libdpdk-dev
    make            # build/$stem-host; `make check` compiles with warnings as errors

## Start and end
    build/$stem-host -l 0,1 -a PCI0 -a PCI1 -- $devices --socket /run/$stem.sock

Before `--` stand the options of DPDK's environment layer: cores, devices, memory (huge pages, or `--no-huge -m 1024`);
behind it those of the program, which `--help` lists. SIGTERM or SIGINT end it: it receives no more, what was received
is served, the totals are printed as one JSON object on standard output. Nothing stays loaded.

From captures to captures, on any machine:

    build/$stem-host -l 0 --no-huge -m 512 --no-pci --no-telemetry $pcap -- $devices --idle-ms 200

The function is a bump in the wire: frames keep their Ethernet addresses. It computes all checksums itself and asks
devices for no offload.

## Tables and counters
The control socket takes one JSON object a line and answers one a line:

| request | answer |
| --- | --- |
| `{"do": "status"}` | counters, tables, pools, work of each core, what devices dropped |
| `{"do": "dump", "state": NAME}` | `rows` in base64, as `manifest.json` tells their size |
| `{"do": "begin"}` | opens a transaction; `commit` does what it holds at once or not at all, `abort` ends it |
| `{"do": "load", "state": NAME, "rows": ...}` | at the commit the rows take the place of the state's entries |
| `{"do": "trace", "packets": N, "wait_ms": T}` | what became of packets that core 0 ran |
| `{"do": "stop"}` | as SIGTERM |

With Cora on the machine, `cora status`, `cora state dump` and `cora state load` speak it. Counters are exact: the cores
stand still between two packets while they are read.

| count | what happened | what to do |
| --- | --- | --- |
| `receive_queue_full`, `no_buffer` | packets came faster than the cores take them | more cores, more `--buffers` |
| `transmit_queue_full` | a device sends slower than packets come | |
| `too_long` | a frame was longer than `--frame-bytes` | |
| `inserts_refused` | a table was full, or a pool empty | a larger capacity |
| `handed_over` | another core than that of its flow received a packet | a card that hashes (see below) |
| `ran_alone` | all other cores stood still for a packet | |

## Cores
Every entry lives at one core, and a packet is led to the core of the entry it asks for first: by the card where it can
hash these fields (a symmetric Toeplitz key and the table behind it are set), in software where it cannot. No lock is
taken on the way of a packet. Room in tables and values of pools are one for all cores; they change by atomic operations
when an entry is made or removed. Packets that may need entries of several cores run alone, with the other cores
standing still between two of their packets. A device with fewer transmit queues than there are cores is sent to under a
lock, which the program says when it starts.

$cores
""")
