"""The evaluation of the planner over the matrix of `matrix.toml`: cores saved and speed-up against simple placements.

    .venv/bin/python benchmarks/offload/run.py [--jobs 2] [--work FOLDER] [--program nat] [--nic agilio-cx]
                                               [--traffic "zipf 1.0"] [--subset] [--fresh] [--page]

Rows that are done lie in FOLDER/rows.jsonl and are not made again, unless with --fresh; captures and profiles are kept
beside them until the run is complete. Writes FOLDER/evaluation.csv, evaluation.json and pictures; --page also writes
docs/evaluation.md and docs/evaluation/*.svg (the whole matrix only). Every figure is predicted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import matrix as matrices
from matrix import Matrix, Traffic
from plots import pictures
from rows import Row, plain, row_of, rows_of
from tables import page, summary, to_csv
from tenants import tenant_rows

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python benchmarks/offload/run.py --page"


def made(task: tuple[Traffic, str], matrix: Matrix, folder: Path, done: frozenset[str]) -> list[Row]:
    """The rows of one task."""
    traffic, program = task
    return list(rows_of(matrix, program, traffic, folder, done))


def run(matrix: Matrix, folder: Path, jobs: int, known: dict[str, Row]) -> Iterator[Row]:
    """All rows of the matrix that are not known, as they are made."""
    work = partial(made, matrix=matrix, folder=folder, done=frozenset(known))
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for rows in pool.imap(work, list(matrix.tasks())):
            yield from rows
    yield from tenant_rows(matrix, folder, frozenset(known))


def known_rows(file: Path, edition: int) -> dict[str, Row]:
    """The rows of earlier runs of this edition."""
    if not file.exists():
        return {}
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = [row_of(d["row"]) for d in found if d["edition"] == edition]
    return {row.key: row for row in rows}


def write(matrix: Matrix, rows: list[Row], folder: Path, documents: bool) -> None:
    """Tables and pictures; ``documents``: the page too."""
    drawn = pictures(matrix, rows)
    folder.joinpath("evaluation.csv").write_text(to_csv(matrix, rows), encoding="utf-8")
    folder.joinpath("evaluation.json").write_text(
        json.dumps({"edition": matrix.edition, "kind": "predicted", "rows": [plain(r) for r in rows]}, indent=1) + "\n",
        encoding="utf-8")
    for name, (_, svg) in drawn.items():
        folder.joinpath(name).write_text(svg, encoding="utf-8")
    if not documents:
        return
    shown = ROOT / "docs" / "evaluation"
    shown.mkdir(exist_ok=True)
    for name, (_, svg) in drawn.items():
        shown.joinpath(name).write_text(svg, encoding="utf-8")
    text = page(matrix, rows, {f"evaluation/{name}": title for name, (title, _) in drawn.items()}, COMMAND)
    shown.with_suffix(".md").write_text(text, encoding="utf-8")


def main() -> None:
    """Run, resume, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "offload")
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--nic", action="append", default=[])
    parser.add_argument("--traffic", default="")
    parser.add_argument("--subset", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    whole = matrices.load(subset=asked.subset)
    chosen = matrices.chosen(whole, asked.program, asked.nic, asked.traffic)
    if not any(chosen.nics_of(program) for _, program in chosen.tasks()):
        sys.exit("no row of the matrix is chosen: see benchmarks/offload/matrix.toml for the names")
    if asked.page and (chosen != whole or asked.subset):
        sys.exit("the page shows the whole matrix: leave out the flags that choose a part")
    folder: Path = asked.work
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.jsonl"
    if asked.fresh:
        file.unlink(missing_ok=True)
    known = known_rows(file, whole.edition)
    start = time.perf_counter()
    with file.open("a", encoding="utf-8") as out:
        for count, row in enumerate(run(chosen, folder, asked.jobs, known), 1):
            known[row.key] = row
            print(json.dumps({"edition": whole.edition, "row": plain(row)}), file=out, flush=True)
            if count % 20 == 0:
                print(f"{len(known)} of {whole.rows} rows, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    rows = list(known.values())
    write(whole, rows, folder, asked.page)
    for left in (*folder.glob("*.pcap"), *folder.glob("*-*.json"), *folder.glob("*.weak.nf")):
        left.unlink()
    print(summary(rows))
    print(f"{time.perf_counter() - start:.0f} s (measured here); tables and pictures are in {folder}")


if __name__ == "__main__":
    main()
