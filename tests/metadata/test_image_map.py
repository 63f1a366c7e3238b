"""A sorted map that shares: it behaves as a dict, and the older ones stay as they were."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.image import map as image_map
from tidelog.metadata.image.map import LEAF_ENTRIES_MAX, REMOVED, ImageMap, Removed

KEYS = st.integers(0, 3_000)
CHANGES = st.one_of(
    st.dictionaries(KEYS, st.one_of(st.integers(), st.just(REMOVED)), max_size=20),
    st.builds(
        lambda start, count, value: dict.fromkeys(range(start, start + count), value),
        KEYS,
        st.integers(0, 700),
        st.one_of(st.integers(), st.just(REMOVED)),
    ),
)


@given(st.lists(CHANGES, max_size=5))
def test_a_map_is_a_dict_in_order_and_no_change_reaches_an_older_one(
    rounds: list[dict[int, int | Removed]],
) -> None:
    model: dict[int, int] = {}
    found: ImageMap[int, int] = ImageMap()
    for changes in rounds:
        before, earlier = found, dict(model)
        for key, value in changes.items():
            if isinstance(value, Removed):
                model.pop(key, None)
            else:
                model[key] = value
        found = found.updated(changes)
        assert list(found.items()) == sorted(model.items())
        assert list(found) == sorted(model)
        assert list(found.values()) == [model[key] for key in sorted(model)]
        assert len(found) == len(model)
        assert found == ImageMap.of(model)
        assert (found == before) == (model == earlier)
        for key in changes:
            assert found.get(key) == model.get(key)
            assert (key in found) == (key in model)
        assert list(found.keys_from(1_000)) == [key for key in sorted(model) if key >= 1_000]
        differing = {key for key in {*model, *earlier} if model.get(key) != earlier.get(key)}
        assert differing <= set(found.changed_keys(before)) <= set(changes)
        assert dict(before) == earlier


def test_one_change_copies_one_leaf() -> None:
    before = ImageMap.of({key: str(key) for key in range(20 * LEAF_ENTRIES_MAX)})
    after = before.updated({7: "seven"})
    assert after.changed_keys(before) == [7]
    pairs = zip(before.leaf_values(), after.leaf_values(), strict=True)
    assert sum(one is not other for one, other in pairs) == 1


def test_a_leaf_never_grows_beyond_its_limit() -> None:
    found: ImageMap[int, int] = ImageMap()
    for key in range(3 * image_map.LEAF_ENTRIES_MAX):
        found = found.updated({key: key})
        assert all(len(values) <= LEAF_ENTRIES_MAX for values in found.leaf_values())
