"""Components and shortest cycles of graphs whose edges say what happened before what."""

from collections.abc import Sequence

from tidelog.chaos.checkers.transactions.graph import DATA, PROCESS, Graph

DEEP = 20_000


def graph_of(count: int, edges: Sequence[tuple[int, int]], *, kind: int = DATA) -> Graph:
    graph = Graph()
    for _ in range(count):
        graph.add_node()
    for source, target in edges:
        graph.add_edge(source, target, kind)
    return graph


def test_a_graph_without_cycles_has_no_component() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (0, 2), (2, 3)])
    assert graph.components(range(4), DATA) == []


def test_components_that_touch_are_told_apart() -> None:
    graph = graph_of(6, [(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2), (4, 5)])
    assert sorted(graph.components(range(6), DATA)) == [[0, 1], [2, 3, 4]]


def test_edges_that_are_not_allowed_close_no_cycle() -> None:
    graph = graph_of(2, [(0, 1)])
    graph.add_edge(1, 0, PROCESS)
    assert graph.components(range(2), DATA) == []
    assert graph.components(range(2), DATA | PROCESS) == [[0, 1]]


def test_a_component_deeper_than_the_stack_of_the_interpreter_is_found() -> None:
    edges = [(node, (node + 1) % DEEP) for node in range(DEEP)]
    (component,) = graph_of(DEEP, edges).components(range(DEEP), DATA)
    assert len(component) == DEEP


def test_the_shortest_of_two_cycles_is_told() -> None:
    graph = graph_of(5, [(0, 1), (1, 2), (2, 3), (3, 0), (1, 4), (4, 0)])
    (component,) = graph.components(range(5), DATA)
    assert graph.shortest_cycle(component, component, DATA) == [0, 1, 4]


def test_edges_inside_a_reason_cost_nothing() -> None:
    # Four steps of one reason are shorter than two reasons.
    graph = graph_of(5, [(4, 0)])
    for source, target in ((0, 1), (1, 2), (2, 3), (3, 4)):
        graph.add_edge(source, target, DATA, length=0)
    graph.add_edge(0, 4, DATA)
    (component,) = graph.components(range(5), DATA)
    cycle = graph.shortest_cycle(component, component, DATA)
    assert cycle is not None
    assert graph.length(cycle) == 1


def test_a_node_that_leads_back_to_itself_through_others_is_its_own_cycle() -> None:
    graph = graph_of(3, [(0, 1), (1, 2), (2, 0)])
    assert graph.shortest_path(1, 1, frozenset(range(3)), DATA) == [1, 2, 0]
