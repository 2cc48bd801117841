"""The plan document, and (called as a function) the planner: ``cora.plan(program, profile, nic, rate=...)``.

The package and the API function share their name, so the package can be called; it passes everything to
`cora.api.plan`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from cora import api

        return api.plan(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
