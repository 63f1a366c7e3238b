"""Cycles in the order of events of a history: named as in the literature, told in words.

G1c: what was read shows that each of several transactions happened before the others. G_single:
one step of the cycle is a read that did not see a record (rw); G2: several are. The suffix says
what else it takes: `_process` the order of a process, `_realtime` the order of times.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from tidelog.chaos.checkers.transactions.events import (
    Answered,
    Asked,
    Decided,
    Event,
    EventGraph,
    Moment,
    Readable,
)
from tidelog.chaos.checkers.transactions.graph import (
    ANTI,
    CYCLE_STARTS_MAX,
    DATA,
    PROCESS,
    REALTIME,
    EdgeKind,
    Graph,
    Path,
)
from tidelog.chaos.checkers.transactions.view import (
    Blame,
    TransactionFinding,
    TransactionView,
    spell_ms,
)

_ALL: Final[EdgeKind] = DATA | PROCESS | REALTIME | ANTI

CIRCULAR: Final[tuple[tuple[str, EdgeKind], ...]] = (
    ("G1c", DATA),
    ("G1c_process", DATA | PROCESS),
    ("G1c_realtime", DATA | PROCESS | REALTIME),
)
SINGLE: Final[tuple[tuple[str, EdgeKind], ...]] = (
    ("G_single", DATA),
    ("G_single_process", DATA | PROCESS),
    ("G_single_realtime", DATA | PROCESS | REALTIME),
)
SEVERAL: Final = "G2"

CYCLE_CHECKS: Final = (
    *(name for name, _ in CIRCULAR),
    *(name for name, _ in SINGLE),
    SEVERAL,
)


def find_cycles(view: TransactionView) -> Iterator[tuple[str, TransactionFinding]]:
    """One shortest cycle of each strongly connected component, under its plainest name."""
    made = EventGraph(view)
    graph = made.graph
    for component in graph.components(range(len(graph)), _ALL):
        yield from (
            (name, _told(made, cycle, view.blame))
            for name, cycle in _plainest(graph, made.events, component)
        )


def _plainest(
    graph: Graph, events: list[Event], component: list[int]
) -> Iterator[tuple[str, Path]]:
    """The cycles of the first name that applies: what needs fewer assumptions accuses better."""
    for name, allowed in CIRCULAR:
        smaller = graph.components(component, allowed)
        for each in smaller:
            starts = [node for node in each if isinstance(events[node], Answered)]
            cycle = graph.shortest_cycle(each, starts, allowed)
            assert cycle is not None, "a cycle without a poll goes back in time by itself"
            yield name, cycle
        if smaller:
            return
    for name, allowed in SINGLE:
        best: Path | None = None
        for each in graph.components(component, allowed | ANTI):
            inside = frozenset(each)
            anti = (edge for edge in graph.edges_of(each, ANTI) if edge[1] in inside)
            for source, target in islice(anti, CYCLE_STARTS_MAX):
                path = graph.shortest_path(target, source, inside, allowed)
                if path is not None and (best is None or graph.length(path) < graph.length(best)):
                    best = path
        if best is not None:
            yield name, best
            return
    cycle = graph.shortest_cycle(component, component, _ALL)
    if cycle is not None:
        yield SEVERAL, cycle


def _told(made: EventGraph, cycle: Path, blame: Blame) -> TransactionFinding:
    """The reasons of a cycle, one after the other."""
    events = [made.events[node] for node in cycle]
    partitions = dict.fromkeys(each.partition for each in events if isinstance(each, Readable))
    start = next(
        (
            at
            for at, event in enumerate(events)
            if isinstance(event, (Decided, Asked)) and isinstance(_next(events, at), Readable)
        ),
        0,
    )
    turned = [*cycle[start:], *cycle[:start], cycle[start]]
    reasons = list(_reasons(made, turned))
    assert not blame.values.intersection(
        each.value for each in events if isinstance(each, Readable)
    ), "what another check explains is no part of the graph"
    return TransactionFinding(
        partition=", ".join(partitions), detail="; ".join(reasons) + ": a circle"
    )


def _next(events: list[Event], at: int) -> Event:
    return events[(at + 1) % len(events)]


def _reasons(made: EventGraph, nodes: Path) -> Iterator[str]:
    """Edges inside one reason are told with it, from where it begins to where it ends."""
    at = 0
    while at < len(nodes) - 1:
        end = at + 1
        event = made.events[nodes[at]]
        reached = made.events[nodes[end]]
        if isinstance(reached, (Readable, Moment)):
            through = type(reached)
            while isinstance(made.events[nodes[end]], through):
                end += 1
        target = made.events[nodes[end]]
        kind = made.graph.kind_of(nodes[at], nodes[at + 1], _ALL)
        reason = _reason(event, [made.events[node] for node in nodes[at + 1 : end]], target, kind)
        if reason:
            yield reason
        at = end


def _reason(event: Event, between: list[Event], target: Event, kind: EdgeKind) -> str:
    if between and isinstance(between[0], Readable):
        first, last = between[0], between[-1]
        assert isinstance(last, Readable), "records are followed by records only"
        return _told_by_records(event, first, last, target)
    if between:
        return f"{_name(event)} was over at {_over(event)}, before {_name(target)} began"
    if kind == PROCESS:
        return f"its process did {_name(event)} before {_name(target)}"
    if isinstance(event, Answered) and isinstance(target, Asked):
        return f"{_name(event)} came before {_name(target)}, in the same transaction"
    return ""


def _told_by_records(event: Event, first: Readable, last: Readable, target: Event) -> str:
    place = f"{first.value} in {first.partition} at {first.offset}"
    read = "that" if first is last else f"beyond it, up to {last.offset}"
    if isinstance(event, Asked):
        end = dict(event.reader.poll.ends)[first.partition]
        return (
            f"{event.reader.name} asked for the end of {first.partition} and read up to {end}, so "
            f"{place} was not readable yet (rw), but {_name(target)} read {read} (wr)"
        )
    return f"{_name(event)} sent {place}, and {_name(target)} read {read} (wr)"


def _name(event: Event) -> str:
    match event:
        case Decided(transaction=transaction):
            return transaction.name
        case Asked(reader=reader) | Answered(reader=reader):
            return reader.name
        case _:
            raise AssertionError("a reason begins and ends with a call")


def _over(event: Event) -> str:
    if isinstance(event, Decided):
        return spell_ms(event.transaction.ended_ns)
    assert isinstance(event, Answered), "only calls are over"
    return spell_ms(event.reader.poll.ended_ns)
