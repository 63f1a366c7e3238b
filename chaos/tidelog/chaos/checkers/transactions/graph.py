"""Directed graphs of which every edge says that one thing happened before another.

Owns strongly connected components and shortest cycles; knows nothing of what the nodes stand for.
Nodes are numbers from 0. An edge has a kind, and a length of 0 or 1: an edge of length 0 is a step
inside one reason, so that the shortest cycle is the one with the fewest reasons.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

CYCLE_STARTS_MAX: Final = 64
"""From so many nodes of a component a shortest cycle is looked for: the told one is short, and the
shortest of all where the component is no larger."""


EdgeKind = int
"""Why one node comes before another. Several are allowed at once by `|`: plain numbers, because
every edge of a long history is looked at."""

DATA: Final[EdgeKind] = 1
"""What is written, read and called inside one transaction shows it."""
PROCESS: Final[EdgeKind] = 2
"""One process did both."""
REALTIME: Final[EdgeKind] = 4
"""One was over before the other began."""
ANTI: Final[EdgeKind] = 8
"""A reader that asked for the end did not see it yet (rw)."""


Path = list[int]


class Graph:
    """Edges by the node that they leave."""

    def __init__(self) -> None:
        self._targets: list[list[int]] = []
        self._kinds: list[list[EdgeKind]] = []
        self._lengths: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._targets)

    def add_node(self) -> int:
        """A node without edges."""
        self._targets.append([])
        self._kinds.append([])
        self._lengths.append([])
        return len(self._targets) - 1

    def add_edge(self, source: int, target: int, kind: EdgeKind, *, length: int = 1) -> None:
        """`source` happened before `target`."""
        self._targets[source].append(target)
        self._kinds[source].append(kind)
        self._lengths[source].append(length)

    def kind_of(self, source: int, target: int, allowed: EdgeKind) -> EdgeKind:
        """The first allowed kind of edge between two nodes that have one."""
        return next(
            kind
            for each, kind in zip(self._targets[source], self._kinds[source], strict=True)
            if each == target and kind & allowed
        )

    def edges_of(self, nodes: Iterable[int], kind: EdgeKind) -> Iterator[tuple[int, int]]:
        """The edges of one kind that leave these nodes."""
        for source in nodes:
            for target, each in zip(self._targets[source], self._kinds[source], strict=True):
                if each & kind:
                    yield source, target

    def components(self, nodes: Iterable[int], allowed: EdgeKind) -> list[list[int]]:
        """Strongly connected components with more than one node (Tarjan), over allowed edges.

        The stack is a list: a history is deeper than Python's recursion.
        """
        inside = bytearray(len(self._targets))
        starts = list(nodes)
        for node in starts:
            inside[node] = 1
        search = _ComponentSearch(self, inside, allowed)
        for node in starts:
            if search.index[node] == 0:
                search.visit(node)
        return search.found

    def successors(self, node: int, allowed: EdgeKind) -> list[int]:
        """Where allowed edges lead."""
        return [
            target
            for target, kind in zip(self._targets[node], self._kinds[node], strict=True)
            if kind & allowed
        ]

    def shortest_path(
        self, source: int, target: int, inside: frozenset[int], allowed: EdgeKind
    ) -> Path | None:
        """From node to node through nodes inside; from a node to itself: its shortest cycle."""
        best: dict[int, int] = {source: 0}
        before: dict[int, int] = {}
        queue = deque([source])
        done: set[int] = set()
        closing: tuple[int, int] | None = None
        while queue:
            node = queue.popleft()
            if node in done:
                continue
            done.add(node)
            if closing is not None and closing[0] <= best[node]:
                break
            for at, each in enumerate(self._targets[node]):
                if each not in inside or not self._kinds[node][at] & allowed:
                    continue
                length = best[node] + self._lengths[node][at]
                if each == target and (closing is None or length < closing[0]):
                    closing = (length, node)
                if each not in best or length < best[each]:
                    best[each] = length
                    before[each] = node
                    if self._lengths[node][at]:
                        queue.append(each)
                    else:
                        queue.appendleft(each)
        if closing is None:
            return None
        path = _walk_back(before, closing[1], source)
        return path if target == source else [*path, target]

    def shortest_cycle(
        self, component: list[int], starts: Iterable[int], allowed: EdgeKind
    ) -> Path | None:
        """A cycle of the component with few reasons, as its nodes in order."""
        inside = frozenset(component)
        cycles = (
            self.shortest_path(start, start, inside, allowed)
            for _, start in zip(range(CYCLE_STARTS_MAX), starts, strict=False)
        )
        return min((cycle for cycle in cycles if cycle is not None), key=self.length, default=None)

    def length(self, cycle: Path) -> int:
        """How many reasons a cycle has."""
        return sum(
            self._lengths[source][self._targets[source].index(target)]
            for source, target in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        )


class _ComponentSearch:
    """Tarjan's search without recursion."""

    def __init__(self, graph: Graph, inside: bytearray, allowed: EdgeKind) -> None:
        self._graph = graph
        self._inside = inside
        self._allowed = allowed
        self.index = [0] * len(graph)
        """When each node was reached, from 1; 0: not yet."""
        self._lowest = [0] * len(graph)
        self._on_stack = bytearray(len(graph))
        self._stack: list[int] = []
        self._count = 0
        self.found: list[list[int]] = []

    def visit(self, start: int) -> None:
        """Everything that is reached from a node."""
        work: list[tuple[int, Iterator[int]]] = [(start, self._reach(start))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if not self._inside[target]:
                    continue
                if self.index[target] == 0:
                    work.append((target, self._reach(target)))
                    break
                if self._on_stack[target]:
                    self._lowest[node] = min(self._lowest[node], self.index[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    self._lowest[above] = min(self._lowest[above], self._lowest[node])
                if self._lowest[node] == self.index[node]:
                    self._take(node)

    def _reach(self, node: int) -> Iterator[int]:
        self._count += 1
        self.index[node] = self._lowest[node] = self._count
        self._stack.append(node)
        self._on_stack[node] = 1
        return iter(self._graph.successors(node, self._allowed))

    def _take(self, root: int) -> None:
        component: list[int] = []
        while True:
            node = self._stack.pop()
            self._on_stack[node] = 0
            component.append(node)
            if node == root:
                break
        if len(component) > 1:
            self.found.append(sorted(component))


def _walk_back(before: dict[int, int], last: int, source: int) -> Path:
    path = [last]
    while path[-1] != source:
        path.append(before[path[-1]])
    path.reverse()
    return path
