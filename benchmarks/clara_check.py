"""The Agilio model against Clara's measured programs, which it was not fitted on row by row.

Reads a clone of github.com/824728350/Clara (its data have no licence, so they are not here): ``scale_out`` holds
synthetic programs and real Click programs at 24 to 60 micro-engines, with traffic of few flows (``hit``) and of many
(``miss``). A program's features become operations as docs/models.md says; the rows can be written to a file for
``cora nics --validate --rows``.

    git clone https://github.com/824728350/Clara && python benchmarks/clara_check.py Clara [--sample 60] [--write FILE]
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from cora.models import registry
from cora.models.calibration_rows import CalibrationRow
from cora.models.validation import ValidationRow, bands, predict, summarise

SEED = 7
ENGINES_PER_STEP = 6
THREADS = 4
# Hashing a flow's 16 bytes, in units of a CRC over 20.
FLOW_HASH = 0.8
FEATURE = re.compile(r"'(choices|configs): ', \[(.*?)\]")
RESULT = re.compile(r"^(\d+)\s*\nlatency_fake.*?throughput: ([\d.]+);", re.MULTILINE)
ELEMENTS = ("filter1", "filter2", "rewriter", "avg_counter", "counter", "ftp_mapper", "webgen", "encap", "demux",
            "conn")


def features(text: str) -> tuple[list[int], list[int]] | None:
    """Which elements and blocks a program has, and how large they are."""
    found = {name: [int(re.sub(r"\D", "", n)) for n in numbers.split(",")] for name, numbers in FEATURE.findall(text)}
    if set(found) != {"choices", "configs"}:
        return None
    chosen = found["choices"]
    # Some files have two more accelerator columns.
    return (chosen[:22] + chosen[24:] if len(chosen) == 32 else chosen), found["configs"]


def operations(chosen: list[int], sizes: list[int], many: bool) -> dict[str, float]:
    """A program in operations of the model; the third block of each kind runs as often as the first."""
    has = dict(zip(ELEMENTS, chosen[:10], strict=False))
    buckets, compute, crc = sizes[2:7], list(sizes[7:17]), list(sizes[17:27])
    compute[2], crc[2] = compute[0], crc[0]
    probes = (has["rewriter"] * buckets[2] + has["ftp_mapper"] * (buckets[0] + buckets[1]) + has["webgen"] * buckets[3]
              + (has["demux"] + has["conn"]) * buckets[4])
    traffic = {"rule": has["filter1"] * sizes[0] + has["filter2"] * sizes[1], "probe": probes,
               **{name: has[name] for name in ("counter", "avg_counter", "ftp_mapper", "webgen", "encap")}}
    found: dict[str, float] = {name + ("_many" if many else ""): float(n) for name, n in traffic.items()}
    found["compute"] = float(sum(a * b for a, b in zip(chosen[10:20], compute, strict=True)))
    hashed = has["rewriter"] + has["demux"] + has["conn"]
    found["crc"] = sum(a * b for a, b in zip(chosen[20:30], crc, strict=True)) + FLOW_HASH * hashed
    return {**{name: n for name, n in found.items() if n}, **({"base_many": 1.0} if many else {})}


def rows(clone: Path, kind: str, traffic: str, sample: int | None) -> Iterator[CalibrationRow]:
    """Rows of a folder; of a sample of its programs, at two numbers of engines each."""
    folder = clone / "scale_out" / f"{'testset' if kind == 'real' else 'dataset'}_{traffic}"
    files = sorted(folder.glob("trainingset_feature_*"), key=lambda p: int(p.name.rsplit("_", 1)[1]))
    generator = random.Random(SEED)
    for file in files if sample is None else generator.sample(files, min(sample, len(files))):
        found = features(file.read_text())
        tag = file.with_name(file.name.replace("feature", "tag"))
        if found is None or not tag.is_file():
            continue
        counts = operations(*found, traffic == "miss")
        results = [(int(step) * ENGINES_PER_STEP, float(rate) / 1e6) for step, rate in RESULT.findall(tag.read_text())]
        number = file.name.rsplit("_", 1)[1]
        for engines, rate in results if sample is None else generator.sample(results, min(2, len(results))):
            yield CalibrationRow(f"{kind} {traffic} {number}, {engines} engines", f"{kind}, {traffic}", rate, "Mpps",
                                 "CLA: scale_out", "nic", nic="agilio-cx", operations=counts, fitted=False, reading=0.0,
                                 values={"me_count": engines, "threads": THREADS})


def as_toml(row: CalibrationRow) -> str:
    """A row as the files of rows have it."""
    counts = ", ".join(f"{name} = {n:g}" for name, n in row.operations.items())
    values = ", ".join(f"{name} = {n:g}" for name, n in row.values.items())
    return (f'[[row]]\nnic = "{row.nic}"\nname = "{row.name}"\ngroup = "{row.group}"\npublished = {row.published:.4f}\n'
            f'unit = "Mpps"\nsource = "{row.source}"\nplace = "nic"\nfitted = false\nreading = 0.0\n'
            f"operations = {{ {counts} }}\nvalues = {{ {values} }}\n")


def main() -> None:
    """Predict, print the summary, perhaps write the rows."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("clone", type=Path)
    arguments.add_argument("--sample", type=int, default=60, help="synthetic programs of each traffic; 0: all")
    arguments.add_argument("--write", type=Path, help="write the rows as TOML")
    asked = arguments.parse_args()
    groups = [(kind, traffic, asked.sample or None if kind == "synthetic" else None)
              for kind in ("synthetic", "real") for traffic in ("hit", "miss")]
    found = {(kind, traffic): list(rows(asked.clone, kind, traffic, sample)) for kind, traffic, sample in groups}
    if not any(found.values()):
        raise SystemExit(f"{asked.clone} is no clone of Clara: there are no programs under scale_out")
    if asked.write:
        asked.write.write_text("\n".join(as_toml(r) for some in found.values() for r in some))
    for (kind, traffic), some in found.items():
        s = summarise([validated(row) for row in some])
        print(f"{kind}, {traffic}: {s.rows} rows, median error {s.median:.1%}, at most {s.largest_over:.1%} over and "
              f"{s.largest_under:.1%} under, {s.covered:.0%} inside the band")


def validated(row: CalibrationRow) -> ValidationRow:
    """The prediction for a row, with its band."""
    target = registry.get("agilio-cx")
    model = target.model.pinned(row.values)
    low, high = bands(type(target), model, row)
    predicted, found = predict(type(target)(model), row)
    return ValidationRow(target.name, row.name, row.group, row.unit, row.published, predicted, low, high,
                         found.binding or "", row.source, False, row.reading)


if __name__ == "__main__":
    main()
