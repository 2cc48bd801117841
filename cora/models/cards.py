"""Cards of a family that the model file does not know: instance files, and what others on the card use.

An instance file is TOML: a ``description``, ``values`` of parameters, perhaps their ``bounds``, the ``instance`` it
starts from, and what is kept for others::

    description = "our lab's card"
    instance = "1x40"
    [values]
    me_count = 54
    [reserve]
    emem = "512MiB"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cora.errors import Kind, fail
from cora.models.parameters import Card, Model, instance_of, read_toml
from cora.models.target import Place, Tier
from cora.units import parse_bytes, parse_count

SUFFIX = ".toml"
_PREFIX = "reserved_"


def left(model: Model, what: str, amount: float) -> int:
    """What is left of a memory or table, or of the code store, after what others use of it."""
    return max(0, int(amount - model[_PREFIX + what]))


def from_file(model: Model, path: Path) -> tuple[Model, tuple[str, ...]]:
    """The model of a card described in a file, and its reservations as ``WHAT=AMOUNT``.

    Raises:
        CoraError: `Kind.BAD_MODEL` when the file makes no sense, `Kind.UNKNOWN_NIC` for the instance it starts from.
    """
    data = read_toml(path)
    strange = sorted(set(data) - {"description", "instance", "values", "bounds", "reserve"})
    if strange:
        raise fail(Kind.BAD_MODEL, f"an instance file has no {strange[0]}", where=str(path),
                   hint="it has a description, values, bounds, an instance to start from, and reserve")
    start, reserve = data.pop("instance", None), data.pop("reserve", {})
    if start is not None and not isinstance(start, str):
        raise fail(Kind.BAD_MODEL, "instance must be the name of one of the model's instances", where=str(path))
    if not isinstance(reserve, dict) or not all(isinstance(v, str | int) for v in reserve.values()):
        raise fail(Kind.BAD_MODEL, 'reserve must be a table such as emem = "512MiB"', where=str(path))
    based = model.at_instance(start)
    found = instance_of(path.stem, {"values": {}, **data}, based.parameters, path)
    return based.with_instance(found), tuple(f"{k}={v}" for k, v in reserve.items())


def reserve(model: Model, places: Sequence[Place], asked: Sequence[str], where: str = "--reserve") -> Model:
    """The model of a card of which others use something: ``emem=512MiB``, ``rules=100k``, ``code=1000``.

    Raises:
        CoraError: `Kind.BAD_FLAG` naming what can be reserved, or how much there is.
    """
    room = _reservable(model, places)
    found: dict[str, float] = {}
    for text in asked:
        what, sign, amount = text.partition("=")
        what = what.strip()
        if not sign or what not in room:
            raise fail(Kind.BAD_FLAG, f"'{text}' reserves nothing that this card has: {', '.join(room) or 'nothing'}",
                       where=where, hint="write for example --reserve emem=512MiB or --reserve rules=100k")
        if what in found:
            raise fail(Kind.BAD_FLAG, f"{what} is reserved twice", where=where)
        tier = room[what]
        number = (parse_bytes if tier.unit == "bytes" else parse_count)(amount, where=f"{where} {what}")
        if number > tier.capacity:
            raise fail(Kind.BAD_FLAG, f"{what} has {tier.capacity:,} {tier.unit}: {number:,} cannot be reserved",
                       where=where, hint="reserve less, or take another instance of the card")
        found[what] = number
    pinned = {_parameter(what): model[_parameter(what)] + number for what, number in found.items()}
    return model.pinned(pinned)


def with_reserved(card: Card, bytes_of: Mapping[str, int]) -> Card:
    """The card with more of some memories or caches reserved, each named once."""
    asked = {text.partition("=")[0].strip(): text.partition("=")[2] for text in card.reserved}
    more = {what: parse_bytes(asked[what], where=what) + amount if what in asked else amount
            for what, amount in bytes_of.items()}
    kept = [f"{what}={amount}" for what, amount in asked.items() if what not in more]
    return replace(card, reserved=(*kept, *(f"{what}={amount}" for what, amount in more.items())))


def _parameter(what: str) -> str:
    """The parameter that says how much of something is reserved."""
    return _PREFIX + what.replace("-", "_")


def _reservable(model: Model, places: Sequence[Place]) -> Mapping[str, Tier]:
    """By name what of a card can be reserved, with what is free of it."""
    room = {t.name: t for p in places[:-1] for t in p.tiers if _PREFIX + t.name in model.parameters}
    code = next((p.code_capacity for p in places if p.code_capacity is not None), None)
    for name in model.parameters:
        if name.startswith(_PREFIX) and name.endswith("_cache"):
            what = name.removeprefix(_PREFIX)
            room[what.replace("_", "-")] = Tier(what, int(model[f"{what}_bytes"] - model[name]))
    if code is not None and _PREFIX + "code" in model.parameters:
        room["code"] = Tier("code", code, "instructions")
    return room
