"""The evaluation as tables: CSV, text for the screen, and the page for the documents."""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from matrix import Matrix
from rows import Baseline, Row

NONE = "–"
COLUMNS = ("program", "nic", "zipf", "churn", "size", "flows", "request", "status", "new_flows_per_packet", "cores",
           "cores_p10", "cores_p90", "host_work", "throughput_pps", "throughput_p10", "throughput_p90", "gap",
           "fast_share", "states", "binding", "limit", "seconds")
PER_BASELINE = ("cores", "host_work", "throughput_pps", "speedup", "speedup_p10", "speedup_p90", "host_work_saved",
                "saved_p10", "saved_p90", "cores_saved")


def to_csv(matrix: Matrix, rows: Sequence[Row]) -> str:
    """Every row with every figure."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"{name}.{column}" for name in matrix.baselines for column in PER_BASELINE)])
    for row in rows:
        t = row.traffic
        figures = [row.program, row.nic, t.zipf, t.churn, t.size, t.flows, row.request.name, row.status, row.new_flows,
                   row.cores, row.cores_low, row.cores_high, row.host_work, row.throughput_pps, row.throughput_low,
                   row.throughput_high, row.gap, row.fast, row.decisions, row.binding, row.limit, round(row.seconds, 4)]
        for name in matrix.baselines:
            b = row.baseline(name)
            figures += [""] * len(PER_BASELINE) if b is None else [
                b.cores, b.host_work, b.throughput_pps, b.speedup, b.speedup_low, b.speedup_high, b.saved, b.saved_low,
                b.saved_high, b.cores_saved]
        writer.writerow(["" if f is None else f for f in figures])
    return out.getvalue()


def share(value: float | None) -> str:
    """A share in per cent."""
    return NONE if value is None else f"{100 * value:.1f} %"


def times(value: float | None) -> str:
    """A ratio."""
    return NONE if value is None else f"{value:.2f}x"


def _band(low: float | None, high: float | None, shown: object) -> str:
    return "" if low is None or high is None else f" ({shown(low)} to {shown(high)})"  # type: ignore[operator]


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*rows, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def grouped(rows: Iterable[Row]) -> Mapping[tuple[str, str], list[Row]]:
    """Planned rows by program and NIC."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.status == "planned":
            found[row.program, row.nic].append(row)
    return found


def against_published(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Our figures in the published system's words: per claim (most, median), with the band of the row that has most."""
    asked = [r for r in rows if r.status == "planned" and r.request.rate is not None]
    given = [r for r in rows if r.status == "planned" and r.request.rate is None]

    def best(pairs: Sequence[tuple[float, str]]) -> tuple[str, str]:
        if not pairs:
            return NONE, NONE
        return max(pairs)[1], _middle([p for p, _ in pairs])

    def _middle(values: Sequence[float]) -> str:
        return f"{statistics.median(values):.4g}"

    host = [(b.saved, b) for r in asked if (b := r.baseline("host-only")) is not None and b.saved is not None]
    cores = [(b.cores_saved, b) for r in asked if (b := r.baseline("host-only")) is not None
             and b.cores_saved is not None]
    more = [x for r in asked if (x := more_saved(r)) is not None]
    faster = [(b.speedup - 1, b) for r in given if (b := r.best) is not None and b.speedup is not None]
    wider = [(b.speedup - 1, b) for r in given if (b := r.baseline("host-only")) is not None and b.speedup is not None]
    return {
        "host cores saved against host-only": best([(s, share(s)) for s, _ in cores]),
        "host work saved against host-only": best(
            [(s, f"{share(s)}{_band(b.saved_low, b.saved_high, share)}") for s, b in host]),
        "times as much saved as the best simple placement": best([(m, times(m)) for m in more]),
        "faster than host-only at equal cores": best(
            [(f, f"{share(f)}{_faster(b)}") for f, b in wider]),
        "faster than the best simple placement at equal cores": best(
            [(f, f"{share(f)}{_faster(b)}") for f, b in faster]),
    }


def _faster(b: Baseline) -> str:
    low, high = (None if x is None else x - 1 for x in (b.speedup_low, b.speedup_high))
    return _band(low, high, share)


def more_saved(row: Row) -> float | None:
    """How many times the host work that the best simple placement saves the plan saves, both against host-only."""
    host, best = row.baseline("host-only"), row.best
    if host is None or best is None or None in (host.host_work, best.host_work, row.host_work):
        return None
    assert host.host_work is not None and best.host_work is not None and row.host_work is not None
    theirs = host.host_work - best.host_work
    return (host.host_work - row.host_work) / theirs if theirs > 1e-9 * host.host_work else None


def page(matrix: Matrix, rows: Sequence[Row], pictures: Mapping[str, str], command: str) -> str:
    """The page of the documents."""
    planned = [r for r in rows if r.status == "planned"]
    refused = Counter(r.status for r in rows if r.status != "planned")
    parts = [f"""# Evaluation of the planner

Made by `{command}` from `benchmarks/offload/matrix.toml`
(edition {matrix.edition}), which was fixed before any of its rows was run; nothing on this page is written by hand.
{len(rows):,} rows, {len(planned):,} of them planned. **All figures are `predicted`** by the models of `cora nics`,
bands are P10 to P90 of their parameter box; nothing here ran on a card.

A simple placement is one of `host-only`, `traffic-only`, `state-only`, `greedy` (docs/plan.md), under the same model.

The shipped functions ask for `order strict`, under which a switch whose rules come into force in gaps offloads no flow;
rows `with order weak` are of the same functions without that demand.
""", _published(matrix, planned), _by_program(matrix, planned), _limits(planned)]
    parts.append("## Pictures\n" + "\n".join(f"![{title}]({file})\n" for file, title in pictures.items()))
    parts.append(_factorial(matrix, planned))
    if refused:
        parts.append("## Rows without a plan\n" + markdown(("rows", "why"), [
            (str(n), text.replace("|", "/")) for text, n in refused.most_common()]))
    return "\n".join(parts)


def _published(matrix: Matrix, planned: Sequence[Row]) -> str:
    ours = against_published(planned)
    claims = {
        "host cores saved against host-only": f"{matrix.published['cores_saved_percent']} %",
        "times as much saved as the best simple placement": f"{matrix.published['times_more_saved_than_baselines']}x",
        "faster than the best simple placement at equal cores":
            f"{matrix.published['faster_at_equal_resources_percent']} %",
    }
    lines = []
    for what, (most, middle) in ours.items():
        shown = times if what.startswith("times") else share
        lines.append((what, most, middle if middle == NONE else shown(float(middle)), claims.get(what, NONE)))
    return (f"## Beside the published system\nIts figures (`published`: {matrix.published['source']}) come from\n"
            "network functions, traffic and hardware that are unknown to us: they stand beside ours and cannot be\n"
            "compared row by row.\n\n"
            + markdown(("what", "ours, most of all rows (predicted)", "ours, median", "published"), lines))


def _by_program(matrix: Matrix, planned: Sequence[Row]) -> str:
    lines = []
    for (program, nic), rows in grouped(planned).items():
        asked = [r for r in rows if r.request.rate is not None]
        given = [r for r in rows if r.request.rate is None]
        saved = [b.saved for r in asked if (b := r.baseline("host-only")) is not None]
        versus = [b.saved for r in asked if (b := r.best) is not None]
        host = [b.speedup for r in given if (b := r.baseline("host-only")) is not None]
        best = [b.speedup for r in given if (b := r.best) is not None]
        lines.append((program, nic, f"{share(_median(saved))}, {share(_most(saved))}",
                      f"{share(_median(versus))}, {share(_most(versus))}",
                      f"{times(_median(host))}, {times(_most(host))}", f"{times(_median(best))}, {times(_most(best))}",
                      share(_most(r.gap for r in rows)), _split(rows)))
    header = ("program", "NIC", "host work saved against host-only", "against the best simple placement",
              "throughput against host-only", "against the best simple placement", "largest gap to the bound",
              "rows that split a state")
    return (f"## By program\nMedian and most over the traffics and requests; {NONE} where the simple placement leaves\n"
            "no work to the host either.\n\n" + markdown(header, lines))


def _split(rows: Sequence[Row]) -> str:
    return f"{sum(r.fast is not None for r in rows)} of {len(rows)}"


def _limits(planned: Sequence[Row]) -> str:
    lines = []
    for (program, nic), rows in grouped(planned).items():
        short = [r for r in rows if r.host_work is None or r.host_work > 1e-9]
        told = Counter(r.limit for r in short)
        lines += [(program, nic, f"{n} of {len(rows)}", text.replace("|", "/")) for text, n in told.most_common(2)]
    return ("## What limits us\nWhere a plan leaves work to the host: what binds it, and why the state that the host\n"
            "uses most is not nearer.\n\n" + markdown(("program", "NIC", "rows", "limit"), lines))


def _factorial(matrix: Matrix, planned: Sequence[Row]) -> str:
    """Host work saved and speed-up by popularity and churn, at the middle request of each kind."""
    rates = [r for r in matrix.requests if r.rate is not None]
    cores = [r for r in matrix.requests if r.rate is None]
    parts = ["## By popularity and churn\n"]
    zipfs = list(dict.fromkeys(t.zipf for t in matrix.traffics if t.axis == "factorial"))
    churns = list(dict.fromkeys(t.churn for t in matrix.traffics if t.axis == "factorial"))
    found = {(r.program, r.nic, r.traffic.zipf, r.traffic.churn, r.request): r for r in planned
             if r.traffic.axis == "factorial"}
    for request in (*rates[len(rates) // 2:][:1], *cores[:1]):
        lines = []
        for program in dict.fromkeys(program for _, program in matrix.tasks()):
            for nic in matrix.nics_of(program):
                for churn in churns:
                    cells = [found.get((program, nic, z, churn, request)) for z in zipfs]
                    lines.append((program, nic, churn, *(NONE if c is None else _cell(c) for c in cells)))
        what = ("host work saved against host-only / against the best simple placement" if request.rate else
                "throughput against host-only / against the best simple placement")
        parts.append(f"**{request.name}**: {what}.\n\n" + markdown(
            ("program", "NIC", "churn (flows/s at 10 Mpps)", *(f"zipf {z}" for z in zipfs)), lines))
    return "\n".join(parts)


def _cell(row: Row) -> str:
    host, best = row.baseline("host-only"), row.best
    if row.request.rate is not None:
        return f"{share(host and host.saved)} / {share(best and best.saved)}"
    return f"{times(host and host.speedup)} / {times(best and best.speedup)}"


def summary(rows: Sequence[Row]) -> str:
    """A few lines for the screen."""
    planned = [r for r in rows if r.status == "planned"]
    lines = [f"{len(rows):,} rows, {len(planned):,} planned (all figures predicted)"]
    for what, (most, middle) in against_published(planned).items():
        lines.append(f"{what}: most {most}, median {middle}")
    return "\n".join(lines)
