"""Local search on a placement problem: all single moves are judged at once, the best is made.

Moves: a unit, or all units tied together by whole states, to another place; a whole state to another memory of its
place; two whole states of a place exchange memories. What is minimised is the goal plus penalties for what is
overfull; penalties grow while something is, and shrink while nothing is, so that the search crosses the border between
what fits and what does not again and again. The best assignment that fits is the result.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cora.partition.coarse import where_units_may_be
from cora.partition.evaluate import ROOM
from cora.partition.integer import Goal, Limits, Setting
from cora.partition.problem import Assignment, Problem, Vector

Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
# How penalties change: grow while something is overfull, shrink while nothing is.
_GROW, _SHRINK = 1.6, 0.6
# Penalties while the search is kicked about near the best so far, as a multiple of the first ones.
_FIRM = 3.0
# Moves tried after one look at all of them; those of which all pairs are looked at; what counts as better.
_TRIED = 24
_PAIRED = 120
_LEAST = 1e-9
# Seconds for finding anything that fits.
_LATE = 0.15


@dataclass
class _Moves:
    """Candidates: ``kind`` 0 moves cluster ``what`` to place ``to``, 1 gives state ``what`` option ``to``."""

    kind: Ints
    what: Ints
    to: Ints
    demand: Vector
    filled: Vector


@dataclass
class _Kept:
    """Where the search was when it was best."""

    value: float
    places: Ints
    options: Ints


class LocalSearch:
    """One problem, goal and set of limits.

    ``prices`` [rows] and ``price``: first penalties of overfull rows and of what is above the limits.
    """

    def __init__(self, problem: Problem, setting: Setting, goal: Goal, limits: Limits, prices: Vector,
                 price: float) -> None:
        self.problem, self.setting, self.goal, self.limits = problem, setting, goal, limits
        self.prices, self.price = prices, price
        self.first_prices, self.first_price = prices, price
        self.physical = np.array(problem.physical, np.intp)
        self.allowed = where_units_may_be(problem)
        if setting.cores == 0:
            self.allowed[:, self.physical == problem.host] = False
        available = np.array([r.rate * (setting.cores if r.scales else 1) for r in problem.resources])
        with np.errstate(divide="ignore"):
            self.scale = np.where(available > 0, setting.rate / np.where(available > 0, available, 1.0), 1e9)
        self.host = np.array([c for c, r in enumerate(problem.resources) if r.scales], np.intp)
        service = np.array([*(1e9 * r.servers / r.rate if r.rate else 0.0 for r in problem.resources), 1.0])
        self.service = service
        self.ends = problem.ends
        self.before: list[list[int]] = [[] for _ in problem.units]
        self.after: list[list[int]] = [[] for _ in problem.units]
        for edge in problem.edges:
            self.before[edge.target].append(edge.source)
            self.after[edge.source].append(edge.target)
        self.blocked = (~problem.crossable).cumsum(axis=1)
        self._unary()
        self._states()
        self._rows()
        self._clusters()

    def _unary(self) -> None:
        """[U, L, K + 1] of a unit at a place but for coming there."""
        source, target = self.ends
        self.unary = self.problem.cost.copy()
        np.add.at(self.unary, target, self.problem.reach)
        np.subtract.at(self.unary, source, self.problem.reach)

    def _states(self) -> None:
        """Options of all whole states in one table; of state s those from ``first[s]`` to ``first[s + 1]``."""
        options = [o for s in self.problem.whole for o in s.options]
        self.first = np.cumsum([0, *(len(s.options) for s in self.problem.whole)])
        self.owner = np.repeat(np.arange(len(self.problem.whole)), np.diff(self.first))
        self.place_of = np.array([o.place for o in options], np.intp)
        self.cost_of = np.array([o.cost for o in options]).reshape(len(options), len(self.problem.base))
        if self.setting.cores == 0:
            self.usable = self.place_of != self.problem.host
        else:
            self.usable = np.ones(len(options), np.bool_)

    def _rows(self) -> None:
        """Capacities as rows: stores, ceilings, code stores. ``fill`` [options, rows]: share an option takes.

        ``items``: what takes room at a place if any of its units is there (pieces of code; copies are judged exactly
        only when a move was made).
        """
        problem = self.problem
        rows = [((i,), s.capacity) for i, s in enumerate(problem.stores)]
        limits = [*rows, *((c.stores, c.capacity) for c in problem.ceilings)]
        member = np.zeros((len(problem.stores), len(limits) + len(problem.code)))
        for row, (stores, capacity) in enumerate(limits):
            member[list(stores), row] = 1.0 / max(capacity, 1)
        self.member = member
        options = [o for s in problem.whole for o in s.options]
        self.fill = np.array([o.amount * member[o.store] for o in options]).reshape(len(options), member.shape[1])
        sizes: list[float] = []
        places, of_row, units, items = [], [], [], []
        for number, code in enumerate(problem.code):
            for members, size in code.pieces:
                units += sorted(members)
                items += [len(sizes)] * len(members)
                sizes.append(size / max(code.capacity, 1))
                places.append(code.place)
                of_row.append(len(limits) + number)
        self.size, self.item_place = np.array(sizes), np.array(places, np.intp)
        self.item_row = np.array(of_row, np.intp)
        self.in_unit, self.in_item = np.array(units, np.intp), np.array(items, np.intp)
        capacities = [c for _, c in limits] + [c.capacity for c in problem.code]
        self.full = np.array([1.0 if c else 0.0 for c in capacities])

    def _clusters(self) -> None:
        """Units tied by whole states and by `order strict`: ``cluster`` [U]; states of a cluster."""
        leader = list(range(len(self.problem.units)))

        def find(unit: int) -> int:
            while leader[unit] != unit:
                unit = leader[unit]
            return unit

        for state in self.problem.whole:
            for unit in state.units[1:]:
                leader[find(unit)] = find(state.units[0])
        for group in self.problem.together:
            for unit in group.units[1:]:
                leader[find(unit)] = find(group.units[0])
        roots = [find(u) for u in range(len(leader))]
        number = {root: i for i, root in enumerate(dict.fromkeys(roots))}
        self.cluster = np.array([number[r] for r in roots], np.intp)
        self.members = [np.flatnonzero(self.cluster == c) for c in range(len(number))] if len(number) < len(leader) \
            else [np.array([u]) for u in range(len(leader))]
        self.kept: list[list[int]] = [[] for _ in number]
        for s, state in enumerate(self.problem.whole):
            if state.units:
                self.kept[self.cluster[state.units[0]]].append(s)
        self.stateful = np.array([bool(k) for k in self.kept])
        source, target = self.cluster[self.ends]
        self.inner = source == target
        self.near: list[set[int]] = [{c, *(-1 - s for s in kept)} for c, kept in enumerate(self.kept)]
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            self.near[a].add(b)
            self.near[b].add(a)
        self.state_cluster = np.array([self.cluster[s.units[0]] if s.units else -1 for s in self.problem.whole],
                                      np.intp)

    # Where the search is.

    def start(self, places: Ints, options: Ints, copies: Sequence[dict[int, int]]) -> None:
        """Begin at places [U], options [S] (numbers in the table of all options) and options of copies by place."""
        self.places, self.options, self.copies = places.copy(), options.copy(), [dict(c) for c in copies]
        self._totals()

    def _totals(self) -> None:
        problem, units = self.problem, np.arange(len(self.places))
        total = problem.base + self.unary[units, self.places].sum(axis=0) + self.cost_of[self.options].sum(axis=0)
        source, target = self.places[self.ends]
        edges = np.flatnonzero(target > source)
        total = total + problem.visit[edges, target[edges]].sum(axis=0)
        filled = self.fill[self.options].sum(axis=0)
        for state, chosen in zip(problem.copied, self.copies, strict=True):
            there = {int(self.physical[self.places[u]]) for u in state.users}
            for p in there:
                option = state.options[chosen[p]]
                filled = filled + option.amount * self.member[option.store]
            for i, user in enumerate(state.users):
                total = total + state.options[chosen[int(self.physical[self.places[user]])]].cost[i]
        self.counts = np.zeros(len(self.size), np.intp)
        at = self.physical[self.places[self.in_unit]] == self.item_place[self.in_item]
        np.add.at(self.counts, self.in_item[at], 1)
        np.add.at(filled, self.item_row[self.counts > 0], self.size[self.counts > 0])
        self.demand, self.filled = total, filled

    def worth(self, demand: Vector) -> Vector:
        """[n] the goal's value of demands [n, K + 1]."""
        loads = np.maximum(demand[..., :-1], 0.0) * self.scale
        if self.goal == "load":
            return self.norm(loads)
        if self.goal == "latency":
            latency: Vector = demand @ self.service
            return latency
        if not len(self.host):
            return np.zeros(demand.shape[:-1])
        top: Vector = loads[..., self.host].max(axis=-1) * self.setting.cores
        return top

    def norm(self, loads: Vector) -> Vector:
        """[n] the soft maximum of loads [n, K]."""
        top = np.maximum(loads.max(axis=-1), 1e-300)
        shares = loads / top[..., None]
        # The power of a general exponent takes most of a search's time.
        powers = shares**self.problem.exponent if self.problem.exponent != 8 else ((shares * shares) ** 2) ** 2
        powers = powers.sum(axis=-1)
        found: Vector = top * powers ** (1.0 / self.problem.exponent)
        return found

    def merit(self, demand: Vector, filled: Vector) -> Vector:
        """[n] the goal's value plus penalties."""
        found = self.worth(demand)
        found = found + (np.maximum(filled - self.full, 0.0) * self.prices).sum(axis=-1)
        over = self.over(demand)
        result: Vector = found + self.price * over
        return result

    def over(self, demand: Vector) -> Vector:
        """[n] by how much load, host work and unqueued latency are above their limits, as shares of them."""
        loads = np.maximum(demand[..., :-1], 0.0) * self.scale
        found = np.zeros(demand.shape[:-1])
        if self.limits.load is not None:
            found = found + np.maximum(self.norm(loads) / (self.limits.load * ROOM) - 1, 0.0)
        if self.limits.host is not None and len(self.host):
            host = loads[..., self.host].max(axis=-1) * self.setting.cores
            found = found + np.maximum(host / max(self.limits.host, 1e-9) - 1, 0.0)
        if self.limits.latency is not None:
            found = found + np.maximum(demand @ self.service / self.limits.latency - 1, 0.0)
        return found

    def fits(self) -> bool:
        return bool((self.filled <= self.full + 1e-12).all()) and float(self.over(self.demand)) <= 0.0

    # Moves.

    def moves(self) -> _Moves:
        """All candidates."""
        parts = [*self._place_moves(), self._option_moves()]
        return _Moves(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("kind", "what", "to", "demand",
                                                                                "filled")))

    def _place_moves(self) -> list[_Moves]:
        found = []
        source, target = self.ends
        before, after = self.places[source], self.places[target]
        rows = np.arange(len(source))
        coming = np.where((after > before)[:, None], self.problem.visit[rows, after], 0.0)
        outer = ~self.inner
        for to in range(len(self.physical)):
            bad = np.bincount(target[outer], weights=(before > to)[outer] | self._stuck(before, to)[outer],
                              minlength=len(self.places))
            bad += np.bincount(source[outer], weights=(after < to)[outer] | self._stuck(to, after)[outer],
                               minlength=len(self.places))
            bad += ~self.allowed[:, to]
            legal = np.bincount(self.cluster, weights=bad, minlength=len(self.members)) == 0
            stay = np.ones(len(self.members), np.bool_)
            np.logical_and.at(stay, self.cluster, self.places == to)
            change = self.unary[:, to] - self.unary[np.arange(len(self.places)), self.places]
            # Coming to a place: edges into a moved unit, then edges out of it.
            into = np.where((to > before)[:, None], self.problem.visit[:, to], 0.0) - coming
            out = np.where((after > to)[:, None], self.problem.visit[rows, after], 0.0) - coming
            np.add.at(change, target[outer], into[outer])
            np.add.at(change, source[outer], out[outer])
            clusters = np.flatnonzero(legal & ~stay)
            if not len(clusters):
                continue
            total = np.zeros((len(self.members), change.shape[1]))
            np.add.at(total, self.cluster, change)
            total[~legal] = 0.0
            filled = self._code_change(to)
            found.append(self._with_states(clusters, to, total, filled))
        return found

    def _stuck(self, start: Ints | int, stop: Ints | int) -> Bools:
        """[E] whether a packet cannot move on all the way between two places."""
        rows = np.arange(len(self.blocked))
        found: Bools = (self.blocked[rows, stop] - self.blocked[rows, start]) > 0
        return found

    def _code_change(self, to: int) -> Vector:
        """[clusters, rows] what code takes more when a cluster goes to a place (of pieces shared within it a bound)."""
        change = np.zeros((len(self.members), len(self.full)))
        there = self.physical[to]
        now = self.physical[self.places[self.in_unit]]
        count, place = self.counts[self.in_item], self.item_place[self.in_item]
        delta = np.where((place == there) & (now != there) & (count == 0), 1.0, 0.0)
        delta -= np.where((place == now) & (now != there) & (count == 1), 1.0, 0.0)
        np.add.at(change, (self.cluster[self.in_unit], self.item_row[self.in_item]), delta * self.size[self.in_item])
        return change

    def _with_states(self, clusters: Ints, to: int, total: Vector, filled: Vector) -> _Moves:
        """Clusters without states as they are; the others with each of their states in its cheapest memory there."""
        demand, fill = total[clusters], filled[clusters]
        if len(self.options):
            best = self.cheapest(self.physical[to])
            state_demand = self.cost_of[best] - self.cost_of[self.options]
            state_fill = self.fill[best] - self.fill[self.options]
            same = self.place_of[self.options] == self.physical[to]
            state_demand[same] = state_fill[same] = 0.0
            extra_demand = np.zeros_like(total)
            extra_fill = np.zeros_like(filled)
            tied = self.state_cluster >= 0
            np.add.at(extra_demand, self.state_cluster[tied], state_demand[tied])
            np.add.at(extra_fill, self.state_cluster[tied], state_fill[tied])
            demand = demand + extra_demand[clusters]
            fill = fill + extra_fill[clusters]
        return _Moves(np.zeros(len(clusters), np.intp), clusters, np.full(len(clusters), to), demand, fill)

    def cheapest(self, place: int) -> Ints:
        """[S] the option with the least priced use at a physical place (that of now where there is none)."""
        room = np.maximum(self.full - self.filled, 0.0)
        crowded = self.prices * np.where(room < 0.02, 1.0, 0.1)
        key = self.cost_of @ self.gradient(self.price) + self.fill @ crowded
        key = np.where((self.place_of == place) & self.usable, key, np.inf)
        best = np.minimum.reduceat(key, self.first[:-1])
        hit = np.flatnonzero(key == best[self.owner])
        chosen = self.options.copy()
        chosen[self.owner[hit[::-1]]] = hit[::-1]
        chosen[np.isinf(best)] = self.options[np.isinf(best)]
        return chosen

    def gradient(self, price: float) -> Vector:
        """[K + 1] what a unit of each resource is worth: the goal's slope and ``price`` times the soft maximum's."""
        loads = np.maximum(self.demand[:-1], 0.0) * self.scale
        top = max(float(loads.max()), 1e-300)
        dual = (loads / top) ** (self.problem.exponent - 1)
        dual /= float(((loads / top) ** self.problem.exponent).sum()) ** (1.0 - 1.0 / self.problem.exponent)
        found = np.zeros(len(self.service))
        found[:-1] = dual * self.scale * price
        if self.goal == "host" and len(self.host):
            hottest = self.host[int(loads[self.host].argmax())]
            found[hottest] += self.scale[hottest] * self.setting.cores
        elif self.goal == "latency":
            found += self.service
        return found

    def _option_moves(self) -> _Moves:
        if not len(self.options):
            width = len(self.service)
            none = np.zeros(0, np.intp)
            return _Moves(none, none, none, np.zeros((0, width)), np.zeros((0, len(self.full))))
        now = self.options[self.owner]
        loose = self.state_cluster[self.owner] < 0
        other = (np.arange(len(now)) != now) & self.usable & (loose | (self.place_of == self.place_of[now]))
        to = np.flatnonzero(other)
        return _Moves(np.ones(len(to), np.intp), self.owner[to], to, self.cost_of[to] - self.cost_of[now[to]],
                      self.fill[to] - self.fill[now[to]])

    def make(self, kind: int, what: int, to: int) -> None:
        """Make a move."""
        if kind == 0:
            best = self.cheapest(int(self.physical[to]))
            self.places[self.members[what]] = to
            for s in self.kept[what]:
                if self.place_of[self.options[s]] != self.physical[to]:
                    self.options[s] = best[s]
        else:
            self.options[what] = to
        self._totals()

    def descend(self, deadline: float) -> None:
        """Make the best moves until none is better. Of one look at all moves those are made that touch others' edges
        not at all, each only if it is truly better after the ones before it."""
        here = float(self.merit(self.demand, self.filled))
        while time.perf_counter() < deadline:
            moves = self.moves()
            after = self.merit(self.demand + moves.demand, self.filled + moves.filled)
            order = np.argsort(after)[:_TRIED] if len(after) else np.zeros(0, np.intp)
            order = order[after[order] < here - _LEAST * abs(here)]
            then = self.make_some(moves, order, here)
            if then >= here and not self.exchange(moves, here):
                return
            here = float(self.merit(self.demand, self.filled))

    def make_some(self, moves: _Moves, order: Ints, here: float) -> float:
        """Make the moves of ``order`` that are better; the merit then."""
        touched: set[int] = set()
        for i in order:
            kind, what, near = self.cause(moves, int(i))
            to = int(moves.to[i])
            if touched & near:
                continue
            kept = self.places.copy(), self.options.copy(), self.demand, self.filled, self.counts
            self.make(kind, what, to)
            true = float(self.merit(self.demand, self.filled))
            if true < here - _LEAST * abs(here) and self.ordered():
                here = true
                touched |= near
            else:
                self.places, self.options, self.demand, self.filled, self.counts = kept
        return here

    def exchange(self, moves: _Moves, here: float) -> bool:
        """Make the best pair of moves if it is better: one takes room that the other gives back.

        Only moves that cost little at the first prices are paired, taken as if they did not touch each other.
        """
        if len(moves.kind) < 2:
            return False
        slope = self.gradient(self.first_price)
        priced = moves.demand @ slope + moves.filled @ self.first_prices
        chosen = np.argsort(priced)[:_PAIRED]
        d, f = moves.demand[chosen], moves.filled[chosen]
        after = self.merit(self.demand + d[:, None] + d[None], self.filled + f[:, None] + f[None])
        pairs = np.argsort(after, axis=None)[:_TRIED]
        for i, j in zip(*np.unravel_index(pairs, after.shape), strict=True):
            if not after[i, j] < here - _LEAST * abs(here):
                return False
            kept = self.places.copy(), self.options.copy(), self.demand, self.filled, self.counts
            first, second = self.cause(moves, chosen[i]), self.cause(moves, chosen[j])
            if not first[2] & second[2]:
                self.make(*first[:2], int(moves.to[chosen[i]]))
                self.make(*second[:2], int(moves.to[chosen[j]]))
                if float(self.merit(self.demand, self.filled)) < here - _LEAST * abs(here) and self.ordered():
                    return True
                self.places, self.options, self.demand, self.filled, self.counts = kept
        return False

    def cause(self, moves: _Moves, number: int) -> tuple[int, int, set[int]]:
        """Kind of a move, what it moves, and what must not be moved with it."""
        kind, what = int(moves.kind[number]), int(moves.what[number])
        return kind, what, self.near[what] | {what} if kind == 0 else {-1 - what}

    def ordered(self) -> bool:
        return all(self.place_of[self.options[o.near]] < self.place_of[self.options[o.far]]
                   for o in self.problem.orders) and all(
            self.places[u] in (self.places[t.units[0]], t.near) for t in self.problem.together for u in t.lent)

    def search(self, deadline: float, rounds: int) -> Assignment | None:
        """The best assignment found that fits, None without any: first by changing prices, then by random kicks.

        ``rounds`` of prices are tried at most; a few of them also beyond the deadline, until something fits.
        """
        top = self.oscillate(deadline, rounds)
        if top is None:
            return None
        self.prices, self.price = self.first_prices * _FIRM, self.first_price * _FIRM
        source = random.Random(0)
        while time.perf_counter() < deadline:
            self.places, self.options = top.places.copy(), top.options.copy()
            self._totals()
            self.kick(source)
            self.descend(deadline)
            value = float(self.worth(self.demand))
            if self.fits() and self.ordered() and value <= top.value:
                top = _Kept(value, self.places.copy(), self.options.copy())
        self.places, self.options = top.places, top.options
        self._totals()
        return self.assignment()

    def oscillate(self, deadline: float, rounds: int) -> _Kept | None:
        """Descend with prices that grow while something is overfull and shrink while nothing is."""
        top: _Kept | None = None
        started = time.perf_counter()
        late = max(deadline, started + _LATE)
        for _ in range(rounds):
            self.descend(deadline if top is not None else late)
            over = self.filled > self.full + 1e-12
            value = float(self.worth(self.demand))
            if self.fits() and self.ordered():
                if top is None or value < top.value:
                    top = _Kept(value, self.places.copy(), self.options.copy())
                self.prices = self.prices * _SHRINK
                self.price *= _SHRINK
            else:
                self.prices = np.where(over, self.prices * _GROW, self.prices)
                self.price *= _GROW if float(self.over(self.demand)) > 0 else 1.0
            if time.perf_counter() >= (late if top is None else deadline):
                break
        return top

    def kick(self, source: random.Random) -> None:
        """Move a random unit to another place, and with it whatever has to follow: what comes before it if it goes
        nearer to the wire, what comes after it if it goes away."""
        unit = source.randrange(len(self.places))
        choices = np.flatnonzero(self.allowed[unit])
        to = int(choices[source.randrange(len(choices))])
        nearer = to < self.places[unit]
        around = self.before if nearer else self.after
        moved, waiting = {unit}, [unit]
        while waiting:
            here = waiting.pop()
            for other in (*around[here], *self.members[self.cluster[here]].tolist()):
                late = self.places[other] > to if nearer else self.places[other] < to
                if late and other not in moved:
                    moved.add(other)
                    waiting.append(other)
        those = np.array(sorted(moved), np.intp)
        if not self.allowed[those, to].all():
            return
        best = self.cheapest(int(self.physical[to]))
        self.places[those] = to
        for s in {s for u in moved for s in self.kept[self.cluster[u]]}:
            if self.place_of[self.options[s]] != self.physical[to]:
                self.options[s] = best[s]
        self._totals()

    def assignment(self) -> Assignment:
        copies = []
        for state, chosen in zip(self.problem.copied, self.copies, strict=True):
            there = dict.fromkeys(int(self.physical[self.places[u]]) for u in state.users)
            copies.append({p: chosen[p] for p in there})
        return Assignment(tuple(int(p) for p in self.places),
                          tuple(int(o - f) for o, f in zip(self.options, self.first, strict=False)), tuple(copies))
