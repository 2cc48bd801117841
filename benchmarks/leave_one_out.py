"""How well the models predict rows they were not given: every fitted row left out in turn, with its band.

`cora nics --validate` prints the summary; `cora.models.left_out` says how rows are left out.

    python benchmarks/leave_one_out.py
"""

from __future__ import annotations

from cora.models import registry
from cora.models.left_out import left_out
from cora.models.validation import summarise


def main() -> None:
    """Print every prediction and the summary."""
    found = [row for nic in registry.names() for row in left_out(nic)]
    width = max(len(r.name) for r in found)
    print(f"{'row':<{width}}  published  predicted   error  P10 to P90")
    for r in found:
        band = f"{r.low:.1f} to {r.high:.1f}{'' if r.covered else ' !'}"
        print(f"{r.name:<{width}}  {r.published:>9.2f}  {r.predicted:>9.2f}  {r.error:>+6.1%}  {band}")
    for nic in dict.fromkeys(r.target for r in found):
        s = summarise([r for r in found if r.target == nic])
        print(f"{nic}: {s.rows} rows, median error {s.median:.1%}, at most {s.largest_over:.1%} over and "
              f"{s.largest_under:.1%} under, {s.covered:.0%} inside the band")


if __name__ == "__main__":
    main()
