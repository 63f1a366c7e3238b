"""Somebody who never sees the Python reads the .proto files: everything in them is explained."""

import re

from google.protobuf import descriptor_pb2 as pb

from tests.contract import descriptors

# Words of docs/glossary.md's last column that have no other meaning here.
FORBIDDEN = re.compile(r"\b(shard|master|slave|hw|leo|pid|todo|fixme|python)\b", re.IGNORECASE)
SENTENCE_END = (".", ":", ")")


def undocumented(contract: pb.FileDescriptorSet) -> list[str]:
    """What has no comment before it."""
    texts = descriptors.comments(contract)
    return [
        f"{element.kind} {element.name}"
        for element in descriptors.elements(contract)
        if element.kind not in ("oneof", "extension") and (element.file, element.path) not in texts
    ]


def test_every_service_call_message_field_enum_and_value_is_documented(
    contract: pb.FileDescriptorSet,
) -> None:
    assert undocumented(contract) == []


def test_every_choice_says_how_many_of_its_fields_are_set(contract: pb.FileDescriptorSet) -> None:
    texts = descriptors.comments(contract)
    choices = [element for element in descriptors.elements(contract) if element.kind == "oneof"]
    silent = [
        choice.name
        for choice in choices
        if not texts.get((choice.file, choice.path), "").startswith("Exactly one is set.")
    ]
    assert choices, "the walk finds the choices"
    assert silent == []


def test_comments_are_sentences_in_the_words_of_the_glossary(
    contract: pb.FileDescriptorSet,
) -> None:
    faults = [
        f"{file} {path}: {text}"
        for (file, path), text in descriptors.comments(contract).items()
        if FORBIDDEN.search(text) or not text.endswith(SENTENCE_END)
    ]
    assert faults == []


def test_a_missing_comment_is_seen(contract: pb.FileDescriptorSet) -> None:
    changed = pb.FileDescriptorSet()
    changed.CopyFrom(contract)
    file = next(file for file in changed.file if file.name.endswith("/fetch.proto"))
    path = [descriptors.FILE_MESSAGE, 0, descriptors.MESSAGE_FIELD, 0]
    for location in file.source_code_info.location:
        if list(location.path) == path:
            location.leading_comments = ""
    assert undocumented(changed) == ["field tidelog.v1.FetchPosition.topic_id"]


def test_the_page_for_other_languages_names_every_file_with_a_service(
    contract: pb.FileDescriptorSet,
) -> None:
    page = (descriptors.TOP / "docs/other-languages.md").read_text()
    table = page[page.index("## The rest of the contract") :]
    files = [file.name for file in descriptors.our_files(contract) if file.service]
    stems = [name.removeprefix(descriptors.OURS).removesuffix(".proto") for name in files]
    assert [stem for stem in stems if f"`{stem}`" not in table] == []
