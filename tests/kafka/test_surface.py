"""The names of kafka-python: each is here with the same parameters, or known to be absent."""

import importlib
import inspect
from typing import Any

import pytest

import tidelog.kafka
import tidelog.kafka.admin
from tests.kafka.absent import (
    ABSENT_ERRORS,
    ABSENT_METHODS,
    ABSENT_NAMES,
    DROPPED_PARAMETERS,
    MODULES,
    OF_VERSION_2,
)
from tests.kafka.reference import kafka
from tidelog.kafka import errors
from tidelog.kafka.shared.option_table import ADMIN, CONSUMER, PRODUCER, Verdict
from tidelog.kafka.shared.options import honoured

TABLES = {"KafkaProducer": PRODUCER, "KafkaConsumer": CONSUMER, "KafkaAdminClient": ADMIN}
CLASSES = tuple(TABLES)
OLDER = {"api_version_auto_timeout_ms", "buffer_memory"}
"""Of kafka-python 2."""


def public_methods(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


def parameters(function: Any) -> dict[str, Any]:
    return {
        name: (parameter.kind, parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    }


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_is_there_or_known_to_be_absent(name: str) -> None:
    theirs = set(public_methods(getattr(kafka, name)))
    ours = set(public_methods(getattr(tidelog.kafka, name)))
    assert theirs - ours == set(ABSENT_METHODS[name])
    assert ours - set(OF_VERSION_2.get(name, ())) <= theirs, (
        "a script that uses it would not run with kafka-python"
    )


@pytest.mark.parametrize("name", CLASSES)
def test_methods_take_the_same_parameters_in_the_same_order(name: str) -> None:
    theirs = public_methods(getattr(kafka, name))
    for method, ours in public_methods(getattr(tidelog.kafka, name)).items():
        if method in OF_VERSION_2.get(name, ()):
            continue
        wanted = parameters(theirs[method])
        for dropped in DROPPED_PARAMETERS.get(f"{name}.{method}", ()):
            del wanted[dropped]
        found = parameters(ours)
        assert list(found) == list(wanted), method
        for parameter, (kind, default) in wanted.items():
            assert found[parameter][0] == kind, f"{method}({parameter})"
            assert found[parameter][1] == default, f"{method}({parameter})"


@pytest.mark.parametrize("name", OF_VERSION_2)
def test_names_of_version_2_are_there_with_their_parameters_in_order(name: str) -> None:
    kind = getattr(tidelog.kafka, name)
    for method, wanted in OF_VERSION_2[name].items():
        found = list(inspect.signature(getattr(kind, method)).parameters.values())[1:]
        # What a script of version 2 gives stands first; version 3 has more behind it.
        assert tuple(each.name for each in found)[: len(wanted)] == wanted, method
        assert all(each.default is not each.empty for each in found[len(wanted) :]), method


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_scripts_import_from_has_the_same_names(module: str) -> None:
    theirs = importlib.import_module(f"kafka{module}")
    ours = importlib.import_module(f"tidelog.kafka{module}")
    wanted = set(getattr(theirs, "__all__", ())) or {
        name
        for name, member in vars(theirs).items()
        if inspect.isclass(member) and member.__module__ == theirs.__name__
    }
    missing = {name for name in wanted if not hasattr(ours, name)}
    assert missing == set(ABSENT_NAMES.get(module, ()))


def test_values_have_the_same_fields_and_print_alike() -> None:
    for name in ("TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp"):
        theirs, ours = getattr(kafka.structs, name), getattr(tidelog.kafka, name)
        assert ours._fields == theirs._fields
        values = range(len(ours._fields))
        assert repr(ours(*values)) == repr(theirs(*values))


def test_every_error_has_its_name_number_and_traits() -> None:
    theirs: dict[str, Any] = dict(inspect.getmembers(kafka.errors, inspect.isclass))
    for name, wanted in theirs.items():
        found = getattr(errors, name)
        assert issubclass(found, errors.KafkaError)
        assert found.retriable == wanted.retriable, name
        assert found.invalid_metadata == wanted.invalid_metadata, name
        assert getattr(found, "errno", None) == getattr(wanted, "errno", None), name
        assert getattr(found, "message", None) == getattr(wanted, "message", None), name
        bases = {base.__name__ for base in wanted.__mro__}
        assert bases <= {base.__name__ for base in found.__mro__}, name
    ours = {name for name, _ in inspect.getmembers(errors, inspect.isclass) if name[0] != "_"}
    own = {name for name in ours - set(theirs) if issubclass(getattr(errors, name), Exception)}
    assert own == set(ABSENT_ERRORS)


def test_numbers_of_the_protocol_lead_to_the_same_class() -> None:
    for number in range(-1, 140):
        wanted, found = kafka.errors.for_code(number), errors.for_code(number)
        assert found.__name__ == wanted.__name__
        assert found.errno == wanted.errno == number
        assert str(found("text")) == str(wanted("text"))


@pytest.mark.parametrize("client", TABLES)
def test_every_option_of_kafka_python_has_a_verdict(client: str) -> None:
    theirs = set(getattr(kafka, client).DEFAULT_CONFIG)
    assert theirs <= set(TABLES[client])
    assert set(TABLES[client]) - theirs <= OLDER | {"metrics_enabled", "ssl_ciphers"}


@pytest.mark.parametrize("client", TABLES)
def test_an_option_with_its_default_asks_for_nothing(client: str) -> None:
    known = getattr(kafka, client).DEFAULT_CONFIG
    for name, option in TABLES[client].items():
        is_own = name in known and not _is_of_kafka_python(known[name])
        if option.verdict is not Verdict.HONOURED and is_own:
            assert honoured(client, TABLES[client], {name: known[name]}) == {}


def _is_of_kafka_python(value: object) -> bool:
    """A class or function that a script for Tidelog cannot name."""
    return callable(value) or (isinstance(value, tuple) and all(map(callable, value)))


@pytest.mark.parametrize("name", ["GroupState", "GroupType"])
def test_states_and_types_of_groups_have_the_same_words(name: str) -> None:
    theirs = {each.name: each.value for each in getattr(kafka.admin, name)}
    assert {each.name: each.value for each in getattr(tidelog.kafka.admin, name)} == theirs
