"""Making a profile: the program runs natively on the traffic, in an engine that counts what happens."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cora.analysis.paths import number_paths, path_of, verdict_of
from cora.analysis.profile import PathUse, Profile, StateUse, TimeoutUse, WindowUse
from cora.engine.results import Options
from cora.errors import Kind, fail
from cora.ir import nodes
from cora.ir.hashing import program_hash
from cora.ir.nodes import Program, State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cora.engine.native import RawProfile, TableProfile
    from cora.engine.results import RunSummary
    from cora.frontends.traffic.capture import Batch
    from cora.frontends.traffic.portmap import Assigned
    from cora.runtime.admission import Watch

DEFAULT_WINDOWS = 100
MAX_WINDOWS = 100_000
QUANTILES = (0.1, 0.5, 0.9, 0.99)
# Time-outs that are looked at: longer than the pauses of this share of the entries that were used more than once.
TIMEOUT_QUANTILES = (0.9, 0.99, 0.999, 1.0)
# Points of the popularity curve beside its first: shares of the entries, evenly on a logarithmic scale.
CURVE_POINTS = 24


def make_profile(program: Program, traffic: str | os.PathLike[str], *, port_map: Sequence[str] = (),
                 captured_at: str | None = None, options: Options | None = None, window_ns: int | None = None,
                 progress: Callable[[int], None] | None = None) -> Profile:
    """Run a program on a capture and count.

    The capture is passed over twice: once to know its time span, once to run it.

    Raises:
        CoraError: for everything wrong with the input; `Kind.EMPTY_CAPTURE` when no packet reaches the program.
    """
    import numpy as np

    from cora.engine.native import NativeEngine
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.native import building
    from cora.frontends.traffic.portmap import PortMap
    from cora.runtime.admission import Watch
    from cora.runtime.admission.native import library as simulator
    from cora.runtime.viewpoint import (
        checksum_hint,
        forgetting,
        need_file,
        nothing_arrives,
        port_number,
        silent_ports,
        suspicion,
    )

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    side = port_number(program, captured_at)
    need_file(traffic, "a profile names its capture by a digest")
    with ExitStack() as stack:
        with building(simulator):
            engine = stack.enter_context(NativeEngine(program, options or Options(), profile=True, captured_at=side))
        capture = stack.enter_context(open_traffic(traffic))
        source = mapping.assign(capture)
        first, last, packets = _span(source)
        if not packets:
            raise nothing_arrives(str(traffic), source)
        length, count = _windows(first, last, window_ns)
        engine.set_windows(first, length, count)
        watch = stack.enter_context(closing(Watch(program, engine, (first, length, count))))
        arrived = np.zeros((len(program.ports), 2), dtype=np.uint64)
        engine.run(_counted(source, arrived, progress or (lambda _: None)), watch=watch.feed)
        watch.finish()
        counts = engine.returns()
        hints = suspicion(program, source.counts, engine.dropped_at()) if side is None else forgetting(counts)
        hints += [*silent_ports(program, source.counts, port_map), *checksum_hint(engine.summary())]
        origin = {
            "file": Path(traffic).name, "sha256": _digest(traffic), "ports": mapping.describe(),
            "ports_assumed": mapping.assumed, "captured_at": captured_at, "translated": counts.translated,
            "options": {"ignore_checksums": engine.options.ignore_checksums,
                        "headers_only": engine.options.headers_only},
            "capture_packets": source.stats.packets, "capture_octets": source.stats.bytes,
            "truncated": source.stats.truncated, "skipped": source.stats.skipped, "errors": source.stats.errors,
            "warnings": [*source.warnings, *hints],
        }
        return _build(program, engine.profile(), engine.summary(), arrived, origin, (first, last), length, watch)


def _span(source: Assigned) -> tuple[int, int, int]:
    """Earliest and latest time on the program's clock, and the number of packets."""
    first, last, packets = -1, 0, 0
    for batch in source.batches():
        times = batch["time_ns"]
        first = int(times[0]) if first < 0 else first
        last = max(last, int(times.max()))
        packets += len(batch)
    return max(first, 0), max(last, first), packets


def _windows(first: int, last: int, window_ns: int | None) -> tuple[int, int]:
    if window_ns is not None and not 0 < window_ns < 1 << 63:
        raise fail(Kind.BAD_FLAG, f"a window of {window_ns} ns holds no packets" if window_ns <= 0 else
                   "a window of more than 292 years does not fit the clock", where="--window",
                   hint="for example --window 100ms")
    length = window_ns if window_ns is not None else max(1, -(-(last - first + 1) // DEFAULT_WINDOWS))
    count = (last - first) // length + 1
    if count > MAX_WINDOWS:
        raise fail(Kind.BAD_FLAG, f"windows of {length} ns make {count} windows, at most {MAX_WINDOWS} are kept",
                   where="--window", hint="choose longer windows")
    return length, count


def _counted(source: Assigned, arrived: NDArray[np.uint64], progress: Callable[[int], None]) -> Iterator[Batch]:
    """The batches; ``arrived`` gets packets and octets per port, shape (ports, 2)."""
    import numpy as np

    done = 0
    for batch in source.batches():
        for port in range(len(arrived)):
            lengths = batch["wirelen"][batch["port"] == port]
            arrived[port] += np.array((len(lengths), lengths.sum(dtype=np.uint64)), dtype=np.uint64)
        yield batch
        done += len(batch)
        progress(done)


def _digest(traffic: str | os.PathLike[str]) -> str:
    """SHA-256 of a capture file; empty for what is no file (a pipe gives its bytes once)."""
    if not Path(traffic).is_file():
        return ""
    with open(traffic, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(program: Program, raw: RawProfile, summary: RunSummary, arrived: NDArray[np.uint64],
           origin: Mapping[str, Any], span: tuple[int, int], window_ns: int, watch: Watch) -> Profile:
    paths = _paths(program, raw)
    executed = _executed(program, paths)
    uses = {s.name: _state(s, raw.tables.get(s.name), executed) for s in program.states}
    states = {s.name: _pool(program, s.name, uses) if isinstance(s, nodes.PoolState) else uses[s.name]
              for s in program.states}
    taken = watch.paths()
    windows = tuple(
        WindowUse(span[0] + i * window_ns, int(w["packets"]), int(w["octets"]),
                  sum(int(t.windows[i]["inserts"]) for t in raw.tables.values() if len(t.windows)),
                  sum(int(t.windows[i]["expiries"]) for t in raw.tables.values() if len(t.windows)), taken.get(i, ()))
        for i, w in enumerate(raw.windows))
    sizes = tuple((int(i), int(raw.sizes[i])) for i in raw.sizes.nonzero()[0])
    return Profile(
        program.name, program_hash(program), origin, summary.packets, summary.octets, span[0], span[1], sizes,
        {p.name: (int(arrived[i][0]), int(arrived[i][1])) for i, p in enumerate(program.ports)}, paths, states,
        window_ns, windows, watch.admission([w.packets for w in windows], span[1] - span[0]))


def _paths(program: Program, raw: RawProfile) -> tuple[PathUse, ...]:
    numbering = number_paths(program)
    found = []
    for row in raw.paths:
        path = path_of(program, numbering, int(row["path"]))
        found.append(PathUse(path.id, path.blocks, path.outcomes, verdict_of(program, path), int(row["packets"]),
                             int(row["octets"])))
    return tuple(found)


def _executed(program: Program, paths: Sequence[PathUse]) -> Counter[tuple[str, str]]:
    """How often each (state, kind of access) was executed: packets of each path times its instructions."""
    per_block = {b.label: _accesses(b) for b in program.blocks}
    total: Counter[tuple[str, str]] = Counter()
    for path in paths:
        for label in path.blocks:
            for key, times in per_block[label].items():
                total[key] += times * path.packets
    return total


def _accesses(block: nodes.Block) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for node in (*block.instructions, block.terminator):
        match node:
            case nodes.LoadEntry() | nodes.StoreEntry() | nodes.Touch() | nodes.Delete():
                found[getattr(node.entry.type, "state", ""), node.mnemonic] += 1
            case nodes.Count():
                found[node.counter, "count"] += 1
            case nodes.TrackFragment():
                found[node.state, "track_fragment"] += 1
            case _:
                pass
    return found


def _state(state: State, table: TableProfile | None, executed: Mapping[tuple[str, str], int]) -> StateUse:
    kind = type(state).__name__.removesuffix("State").lower()
    use = StateUse(
        kind, touches=executed.get((state.name, "touch"), 0), loads=executed.get((state.name, "load_entry"), 0),
        stores=executed.get((state.name, "store_entry"), 0), deletes=executed.get((state.name, "delete"), 0),
        counts=executed.get((state.name, "count"), 0) + executed.get((state.name, "track_fragment"), 0))
    return use if table is None else _table_use(state, table, use)


def _table_use(state: State, table: TableProfile, use: StateUse) -> StateUse:
    events = table.events
    keys = [k.name for k in state.keys] if isinstance(state, nodes.MapState) else [""]
    lookups = {} if isinstance(state, nodes.MeterState) else {
        name: (events[f"hit_{i}"], events[f"miss_{i}"]) for i, name in enumerate(keys)}
    accesses = table.uses["accesses"]
    lifetimes = table.uses["last_ns"] - table.uses["first_ns"]
    return replace(
        use, lookups=lookups, inserts=(events["inserted"], events["full"]),
        police=(events["green"], events["yellow"], events["red"], events["full"])
        if isinstance(state, nodes.MeterState) else (0, 0, 0, 0),
        expiries=events["expired"] + events["evicted"], entries_end=events["entries"], entries_peak=events["peak"],
        working_set=_integers(table.windows["distinct"]), popularity=popularity(accesses),
        lifetimes_ns=_quantiles(lifetimes), uses_per_entry=_quantiles(accesses), sampled_entries=len(accesses),
        window_inserts=_integers(table.windows["inserts"]), window_expiries=_integers(table.windows["expiries"]),
        window_deletes=_integers(table.windows["ends"] - table.windows["expiries"]),
        window_peaks=window_peaks(table.windows), pauses_ns=_quantiles(table.uses["pause_ns"]),
        timeouts=timeouts(table.uses) if _expires(state) else ())


def _expires(state: State) -> bool:
    return isinstance(state, nodes.MeterState) or (isinstance(state, nodes.MapState) and bool(state.timeouts))


def timeouts(uses: NDArray[np.void]) -> tuple[TimeoutUse, ...]:
    """What other time-outs would have done to entries (dtype USES): those that cut off few or none of them.

    Every access counts as a refresh; an entry that would have been cut off is counted as if it had gone on.
    """
    import numpy as np

    pauses, first, last = uses["pause_ns"], np.sort(uses["first_ns"]), np.sort(uses["last_ns"])
    again = pauses[uses["accesses"] > 1]
    if not len(again):
        return ()
    chosen = dict.fromkeys(int(t) for t in np.quantile(again, TIMEOUT_QUANTILES, method="inverted_cdf"))
    found = []
    for timeout in chosen:
        # When the i-th entry is made, i + 1 have been, and those idle for longer than the time-out are gone.
        gone = np.searchsorted(last + np.uint64(timeout), first, side="left")
        peak = int((np.arange(1, len(first) + 1) - gone).max())
        found.append(TimeoutUse(timeout, peak, int((pauses > timeout).sum())))
    return tuple(found)


def _pool(program: Program, name: str, uses: Mapping[str, StateUse]) -> StateUse:
    """What the maps that draw from a pool do to it; of several, the sum of their peaks."""
    drawing = [uses[s.name] for s in program.states if isinstance(s, nodes.MapState)
               and any(a.pool == name for a in s.allocs)]

    def total(windows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(map(sum, zip(*windows, strict=True)))

    return replace(
        uses[name], inserts=(sum(u.inserts[0] for u in drawing), 0), deletes=sum(u.deletes for u in drawing),
        expiries=sum(u.expiries for u in drawing), entries_end=sum(u.entries_end for u in drawing),
        entries_peak=sum(u.entries_peak for u in drawing), window_inserts=total(u.window_inserts for u in drawing),
        window_deletes=total(u.window_deletes for u in drawing),
        window_expiries=total(u.window_expiries for u in drawing),
        window_peaks=total(u.window_peaks for u in drawing))


def _integers(values: NDArray[np.uint64]) -> tuple[int, ...]:
    return tuple(values.tolist())


def window_peaks(windows: NDArray[np.void]) -> tuple[int, ...]:
    """Entries live at most in each window (dtype TABLE_WINDOWS): what was left of the one before, or more later on."""
    import numpy as np

    made, ends = windows["inserts"].astype(np.int64), windows["ends"].astype(np.int64)
    left = np.concatenate([[0], np.cumsum(made - ends)[:-1]]) if len(windows) else made
    return tuple(np.maximum(left, windows["peak"].astype(np.int64)).tolist())


def _quantiles(values: NDArray[np.uint64]) -> tuple[int, ...]:
    import numpy as np

    if not len(values):
        return ()
    return tuple(int(v) for v in np.quantile(values, QUANTILES, method="inverted_cdf"))


def popularity(accesses: NDArray[np.uint64]) -> tuple[tuple[float, float], ...]:
    """The head-mass curve: which share of all accesses goes to the most used share of entries.

    The first point is the single hottest entry, the last is (1, 1).
    """
    import numpy as np

    used = np.sort(accesses[accesses > 0])[::-1].astype(np.float64)
    if not len(used):
        return ()
    mass = np.cumsum(used) / used.sum()
    ranks = sorted({round(r) for r in np.geomspace(1, len(used), CURVE_POINTS)})
    return tuple((float(r / len(used)), float(min(1.0, mass[r - 1]))) for r in ranks)
