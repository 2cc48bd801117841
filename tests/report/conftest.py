"""The planner's small programs are used here too; and pages in headless Chromium, told by a script only tests add."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "partition"))

# What the browser may not do here: look for updates, phone home, use a graphics card.
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
          "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
          "--v=0"]

# Boxes of the elements asked for, what sticks out of the window, resources that were loaded, violations of the policy.
_PROBE = """
<script>
const seen = [];
document.addEventListener('securitypolicyviolation', e => seen.push(e.blockedURI + ' ' + e.violatedDirective));
window.addEventListener('load', () => {
  const boxes = {};
  for (const selector of SELECTORS) {
    boxes[selector] = [...document.querySelectorAll(selector)].map(e => {
      const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; });
  }
  const inside = e => {
    for (let p = e; p; p = p.parentElement) if (getComputedStyle(p).overflowX === 'auto') return true;
    return false;
  };
  const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
    && !inside(e)).map(e => e.tagName + '.' + e.className).slice(0, 5);
  const root = getComputedStyle(document.body);
  const out = document.createElement('pre');
  out.id = 'probe';
  out.textContent = JSON.stringify({boxes, wide, seen, width: innerWidth, ink: root.color, paper: root.backgroundColor,
    loaded: performance.getEntriesByType('resource').map(r => r.name)});
  document.body.append(out);
});
</script>
"""


def _looked_at(page: str, folder: Path, selectors: list[str], width: int = 1280, dark: bool = False) -> dict[str, Any]:
    """Load a page and say what came of it; ``console``: what the browser complained about.

    The page's own policy forbids scripts, which is checked elsewhere: here it allows the test's inline one.
    """
    probe = _PROBE.replace("SELECTORS", json.dumps(selectors))
    policy = "default-src &#x27;none&#x27;;"
    assert page.count(policy) == 1
    file = folder / f"page-{width}-{dark}.html"
    file.write_text(page.replace(policy, f"{policy} script-src 'unsafe-inline';")
                    .replace("<style>", probe + "<style>", 1), encoding="utf-8")
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    ran = subprocess.run(
        ["chromium", *_FLAGS, *theme, f"--user-data-dir={folder / 'browser'}", f"--window-size={width},1200",
         "--virtual-time-budget=5000", "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120,
        check=True)
    found = re.search(r'<pre id="probe">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found, ran.stdout[-2000:] + ran.stderr[-2000:]
    told: dict[str, Any] = json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    told["console"] = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    return told


@pytest.fixture
def looked_at() -> Callable[..., dict[str, Any]]:
    """`_looked_at`."""
    return _looked_at
