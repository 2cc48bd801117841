"""What of an integer program depends on neither costs nor sizes: columns for where things are, rows that tie them.

Budgets of one split mostly differ in these alone. They share one `Structure`, so that it is built once, and prices that
prove something of one problem can be tried on another (`cora.partition.certificates`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cora.partition.mixed import Builder, Floats, Ints, MixedProgram
from cora.partition.problem import Problem


def structure_key(problem: Problem, cores: int, memory: bool) -> tuple[object, ...]:
    """Equal for problems that have one structure; it does not depend on costs nor on the sizes of states.

    Code stores and ends of flows count as different where they are other objects: budgets of one split share them. They
    have to live as long as the key.
    """
    return (
        cores == 0, memory, problem.physical, problem.allowed.shape, problem.allowed.tobytes(), problem.ends.tobytes(),
        problem.crossable.tobytes(),
        tuple((s.units, tuple((o.place, o.store) for o in s.options)) for s in problem.whole),
        tuple((s.users, tuple((o.place, o.store) for o in s.options)) for s in problem.copied),
        problem.orders, id(problem.together), id(problem.code),
    )


class Structure:
    """Columns and rows of a problem's placements.

    Attributes:
        allowed: [U, L] where units may be once the options of their states are taken into account.
        column, fixed: [U, L + 1] see `_place_columns`.
        options: per whole state the columns of its options; copies, accesses: of copied states.
        visits: per middle place its number, edges, and columns. groups: per code store its number, pieces, columns.
        code_rows: rows of code stores in order, -1 for those that cannot be overfull.
        program: all of it, columns from 0 to 1.
    """

    def __init__(self, problem: Problem, cores: int, memory: bool) -> None:
        self.problem = problem
        self.cores, self.memory = cores, memory
        self.build = Builder()
        self.spots = len(problem.physical)
        self.allowed = self._allowed()
        self._place_columns()
        self.options = [self.build.add_columns(len(s.options), integer=True) for s in problem.whole]
        self._edges()
        self._whole()
        self._copies()
        self._orders()
        self._together()
        self._visits()
        self.code_rows = np.full(len(problem.code), -1, np.intp)
        self._groups()
        self.columns, self.rows = self.build.columns, self.build.rows
        self.program: MixedProgram = self.build.program()
        self.impossible = bool(~self.allowed.any(axis=1).all()) or self.program.impossible

    # Where things are.

    def _allowed(self) -> NDArray[np.bool_]:
        """[U, L] where units may be once the options of their states are taken into account."""
        problem = self.problem
        physical = np.array(problem.physical)
        allowed = problem.allowed.copy()
        if self.cores == 0:
            allowed[:, physical == problem.host] = False
        for state in problem.whole:
            if state.units:
                allowed[list(state.units)] &= np.isin(physical, [o.place for o in state.options])
        for copied in problem.copied:
            if copied.users:
                allowed[list(copied.users)] &= np.isin(physical, [o.place for o in copied.options])
        return allowed

    def _place_columns(self) -> None:
        """a[u,l] for l = 0..L: 1 first, 0 last, in between a column where there is a choice.

        ``column`` [U, L + 1] has its number, -1 where it is the constant in ``fixed``.
        """
        units = len(self.allowed)
        self.column = np.full((units, self.spots + 1), -1, np.intp)
        self.fixed = np.zeros((units, self.spots + 1))
        self.fixed[:, 0] = 1.0
        for place in range(1, self.spots):
            beyond, before = self.allowed[:, place:].any(axis=1), self.allowed[:, :place].any(axis=1)
            same = beyond & before & ~self.allowed[:, place - 1]
            new = beyond & before & self.allowed[:, place - 1]
            self.fixed[beyond & ~before, place] = 1.0
            self.column[same, place] = self.column[same, place - 1]
            self.fixed[same, place] = self.fixed[same, place - 1]
            self.column[new, place] = self.build.add_columns(int(new.sum()), integer=True)
        for place in range(1, self.spots - 1):
            choice = (self.column[:, place] >= 0) & (self.column[:, place + 1] >= 0)
            units_there = np.flatnonzero(choice & (self.column[:, place] != self.column[:, place + 1]))
            rows = self._rows(len(units_there), low=0.0)
            self._beyond(rows, units_there, place, 1.0)
            self._beyond(rows, units_there, place + 1, -1.0)

    def _rows(self, count: int, low: float = -np.inf, high: float = np.inf) -> Ints:
        return self.build.add_rows(np.full(count, low), np.full(count, high))

    def _beyond(self, rows: Ints, units: Ints, place: int, factor: float) -> None:
        """Add ``factor * a[u,place]`` of each unit to each row."""
        column = self.column[units, place]
        free = column >= 0
        self.build.add_entries(rows[free], column[free], np.full(int(free.sum()), factor))
        self.build.add_constants(rows[~free], factor * self.fixed[units[~free], place])

    def _weighted(self, row: Ints, units: Ints, place: int, factors: Floats) -> None:
        """Add ``factors . a[units,place]`` to one row."""
        column = self.column[units, place]
        free = column >= 0
        self._entries(row, column[free], factors[free])
        self.build.add_constants(row, np.array([float(factors[~free] @ self.fixed[units[~free], place])]))

    def _at(self, rows: Ints, units: Ints, place: int, factor: float) -> None:
        """Add ``factor * (1 when u is at a virtual place)``."""
        self._beyond(rows, units, place, factor)
        self._beyond(rows, units, place + 1, -factor)

    def _at_physical(self, rows: Ints, units: Ints, place: int, factor: float) -> None:
        for virtual, physical in enumerate(self.problem.physical):
            if physical == place:
                self._at(rows, units, virtual, factor)

    def _entries(self, row: Ints, columns: Ints, values: Floats | float) -> None:
        """One row, many columns."""
        filled = np.full(len(columns), values) if isinstance(values, float) else values
        self.build.add_entries(np.repeat(row, len(columns)), columns, filled)

    def _edges(self) -> None:
        source, target = self.problem.ends
        for place in range(1, self.spots):
            together = ~self.problem.crossable[:, place]
            # Nothing to say where both are decided: constants stand in no row.
            said = (self.column[source, place] >= 0) | (self.column[target, place] >= 0)
            said |= self.fixed[target, place] < self.fixed[source, place]
            said |= together & (self.fixed[target, place] != self.fixed[source, place])
            rows = self.build.add_rows(np.zeros(int(said.sum())), np.where(together[said], 0.0, np.inf))
            self._beyond(rows, target[said], place, 1.0)
            self._beyond(rows, source[said], place, -1.0)

    def _whole(self) -> None:
        """One option a state; and at each physical place a user is there exactly when an option there is chosen."""
        states = self.problem.whole
        if not states:
            return
        columns = np.concatenate(self.options)
        owner = np.repeat(np.arange(len(states)), [len(c) for c in self.options])
        where = np.array([o.place for s in states for o in s.options], np.intp)
        one = self._rows(len(states), 1.0, 1.0)
        self.build.add_entries(one[owner], columns, np.ones(len(columns)))
        if self.cores == 0:
            self._entries(self._rows(1, high=0.0), columns[where == self.problem.host], 1.0)
        users = np.array([u for s in states for u in s.units], np.intp)
        first = np.cumsum([0, *(len(s.units) for s in states)])
        for place in dict.fromkeys(self.problem.physical):
            rows = self._rows(len(users), 0.0, 0.0)
            self._at_physical(rows, users, place, 1.0)
            here = where == place
            times = np.diff(first)[owner[here]]
            # Each option stands in the rows of all users of its state.
            start = np.repeat(first[owner[here]] - np.concatenate([[0], np.cumsum(times)[:-1]]), times)
            of_rows = rows[start + np.arange(len(start))]
            self.build.add_entries(of_rows, np.repeat(columns[here], times), np.full(len(of_rows), -1.0))

    def _copies(self) -> None:
        """w[i,o] for user i and option o; y[o] where a place has more than one way, or a copy takes room."""
        self.copies: list[Ints] = []
        self.accesses: list[Ints] = []
        for state in self.problem.copied:
            users, options = np.array(state.users, np.intp), len(state.options)
            kept = self.build.add_columns(options, integer=True)
            used = self.build.add_columns(len(users) * options).reshape(len(users), options)
            self.copies.append(kept)
            self.accesses.append(used)
            rows = self._rows(used.size, low=0.0)
            self.build.add_entries(rows, np.tile(kept, len(users)), np.ones(used.size))
            self.build.add_entries(rows, used.ravel(), -np.ones(used.size))
            where = np.array([o.place for o in state.options])
            for place in dict.fromkeys(self.problem.physical):
                rows = self._rows(len(users), 0.0, 0.0)
                self._at_physical(rows, users, place, -1.0)
                for option in np.flatnonzero(where == place):
                    self.build.add_entries(rows, used[:, option], np.ones(len(users)))
                self._entries(self._rows(1, high=1.0), kept[where == place], 1.0)

    def _orders(self) -> None:
        """The near one is at p or beyond only if the far one is at p + 1 or beyond."""
        for order in self.problem.orders:
            for place in range(len(self.problem.places)):
                row = self._rows(1, low=0.0)
                for number, least, factor in ((order.far, place + 1, 1.0), (order.near, place, -1.0)):
                    there = [o.place >= least for o in self.problem.whole[number].options]
                    self._entries(row, self.options[number][there], factor)

    def _together(self) -> None:
        """Units of a group are alike; a lent one is at another place than the near one only where the group is."""
        for group in self.problem.together:
            first, *others = group.units
            for place in range(1, self.spots):
                rows = self._rows(len(others), 0.0, 0.0)
                self._beyond(rows, np.array(others, np.intp), place, 1.0)
                self._beyond(rows, np.full(len(others), first, np.intp), place, -1.0)
            for place in (p for p in range(self.spots) if p != group.near):
                rows = self._rows(len(group.lent), high=0.0)
                self._at(rows, np.array(group.lent, np.intp), place, 1.0)
                self._at(rows, np.full(len(group.lent), first, np.intp), place, -1.0)

    def _visits(self) -> None:
        """Coming to a middle place is not linear in a (packets may pass it by): v >= "target there" - "source there".

        Where the source is beyond it, the target is too. The weaker "source there or beyond" would leave gaps of
        several per cent between the relaxed and the integer program.
        """
        source, target = self.problem.ends
        self.visits: list[tuple[int, Ints, Ints]] = []
        for place in range(1, self.spots - 1):
            edges = np.flatnonzero(self.allowed[target, place])
            columns = self.build.add_columns(len(edges))
            rows = self._rows(len(edges), low=0.0)
            self.build.add_entries(rows, columns, np.ones(len(edges)))
            self._at(rows, target[edges], place, -1.0)
            self._at(rows, source[edges], place, 1.0)
            self.visits.append((place, edges, columns))

    def _groups(self) -> None:
        """Per code store the columns "code of this group of units is here", with sizes."""
        self.groups: list[tuple[int, list[tuple[frozenset[int], int]], Ints]] = []
        for number, store in enumerate(self.problem.code):
            sizes: dict[frozenset[int], int] = {}
            for units, size in store.pieces:
                sizes[units] = sizes.get(units, 0) + size
            if sum(sizes.values()) <= store.capacity or not self.memory:
                continue
            scale = max(store.capacity, 1)
            row = self._rows(1, high=store.capacity / scale)
            self.code_rows[number] = row[0]
            # Code of one unit alone needs no column of its own.
            alone = np.array([(*units, size) for units, size in sizes.items() if len(units) == 1], float).reshape(-1, 2)
            for virtual in np.flatnonzero(np.array(self.problem.physical) == store.place):
                units_alone, taken = alone[:, 0].astype(np.intp), alone[:, 1] / scale
                for place, sign in ((virtual, 1.0), (virtual + 1, -1.0)):
                    self._weighted(row, units_alone, int(place), sign * taken)
            pieces = [(units, size) for units, size in sizes.items() if len(units) > 1]
            columns = self.build.add_columns(len(pieces))
            units_of = np.array([u for units, _ in pieces for u in sorted(units)], np.intp)
            column_of = np.repeat(columns, [len(units) for units, _ in pieces])
            rows = self._rows(len(units_of), low=0.0)
            self.build.add_entries(rows, column_of, np.ones(len(units_of)))
            self._at_physical(rows, units_of, store.place, -1.0)
            self._entries(row, columns, np.array([size / scale for _, size in pieces]))
            self.groups.append((number, pieces, columns))
