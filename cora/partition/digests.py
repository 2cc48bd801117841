"""Digests of what a plan is made from."""

from __future__ import annotations

import hashlib

from cora.analysis.profile import Profile
from cora.models.parameters import Model


def digest_of(profile: Profile) -> str:
    """SHA-256 of a profile document."""
    return hashlib.sha256(profile.to_json().encode()).hexdigest()


def model_digest(model: Model) -> str:
    """SHA-256 over every parameter's value and band: a plan made with other figures is another plan."""
    rows = "\n".join(f"{p.name} {p.value!r} {p.low!r} {p.high!r}" for p in sorted(model, key=lambda p: p.name))
    return hashlib.sha256(rows.encode()).hexdigest()
