"""Which member is meant, and how the quorum is shown: everything that needs no call."""

import pytest

from tidelog.cli.quorum import choice as quorum_choice
from tidelog.cli.quorum.arguments import address, initial_voters
from tidelog.cli.quorum.describe import as_json, as_text, members_text
from tidelog.client.types.admin import (
    QuorumDescription,
    QuorumMember,
    QuorumMemberStatus,
    QuorumObserver,
)
from tidelog.wire.errors import ErrorCode, TidelogError


def member(node_id: int, uuid: int, *, is_learner: bool = False) -> QuorumMember:
    return QuorumMember(
        node_id=node_id,
        directory_uuid=bytes([uuid]) * 16,
        address=f"127.0.0.1:{9000 + node_id}",
        is_learner=is_learner,
    )


def quorum(*members: QuorumMember, changing: bool = False) -> QuorumDescription:
    return QuorumDescription(
        leader_id=1,
        term=7,
        last_index=12,
        commit_index=11,
        log_start_index=5,
        is_membership_changing=changing,
        members=tuple(
            QuorumMemberStatus(
                member=each,
                match_index=12 - place,
                lag=place,
                last_contact_ms=(0, 40, 5_000, -1)[min(place, 3)],
                is_repairing=False,
                is_installing_snapshot=False,
            )
            for place, each in enumerate(members)
        ),
        observers=(QuorumObserver(node_id=9, applied_index=8),),
    )


FOUR = quorum(member(1, 1), member(2, 2), member(3, 3), member(4, 4, is_learner=True))
WIPED = quorum(member(1, 1), member(2, 2), member(2, 22, is_learner=True))


def test_the_only_learner_of_a_node_id_is_meant() -> None:
    assert quorum_choice.to_promote(FOUR, 4, None) == member(4, 4, is_learner=True)
    assert quorum_choice.to_promote(FOUR, 4, bytes([4]) * 16) == member(4, 4, is_learner=True)


def test_a_voter_stays_a_voter() -> None:
    assert quorum_choice.to_promote(FOUR, 2, None) == member(2, 2)


def test_a_wiped_node_is_promoted_after_its_old_directory_is_removed() -> None:
    with pytest.raises(TidelogError) as caught:
        quorum_choice.to_promote(WIPED, 2, None)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert f"remove-voter 2 --directory-uuid {'02' * 16}" in caught.value.hint
    assert quorum_choice.to_remove(WIPED, 2, bytes([2]) * 16) == member(2, 2)
    after = quorum(member(1, 1), member(2, 22, is_learner=True))
    assert quorum_choice.to_promote(after, 2, None) == member(2, 22, is_learner=True)


def test_two_directories_of_one_node_are_named() -> None:
    with pytest.raises(TidelogError) as caught:
        quorum_choice.to_remove(WIPED, 2, None)
    assert f"{'02' * 16} (voter), {'16' * 16} (learner)" in caught.value.happened
    twice = quorum(member(1, 1), member(3, 3, is_learner=True), member(3, 4, is_learner=True))
    with pytest.raises(TidelogError, match="several directories"):
        quorum_choice.to_promote(twice, 3, None)


@pytest.mark.parametrize(
    "choose", [quorum_choice.to_promote, quorum_choice.to_remove], ids=["promote", "remove"]
)
def test_an_unknown_node_or_directory_is_told_with_those_that_are_known(choose: object) -> None:
    assert callable(choose)
    with pytest.raises(TidelogError, match=r"it has 1, 2, 3, 4 \(learner\)") as caught:
        choose(FOUR, 9, None)
    assert caught.value.code is ErrorCode.UNKNOWN_VOTER
    with pytest.raises(TidelogError, match="04" * 16) as caught:
        choose(FOUR, 4, bytes(16))
    assert caught.value.code is ErrorCode.UNKNOWN_VOTER
    assert "leave --directory-uuid out" in caught.value.hint


def test_a_learner_does_not_lead() -> None:
    assert quorum_choice.to_lead(FOUR, 3) == member(3, 3)
    with pytest.raises(TidelogError) as caught:
        quorum_choice.to_lead(FOUR, 4)
    assert "add-voter 4" in caught.value.hint


def test_the_quorum_is_a_line_and_a_table() -> None:
    assert as_text(FOUR) == "\n".join(
        [
            "Leader: 1  Term: 7  LastIndex: 12  CommitIndex: 11  LogStartIndex: 5",
            (
                "  Node  Role     Address         DirectoryUuid                     Match  Lag  "
                "LastContact  State"
            ),
            f"     1  leader   127.0.0.1:9001  {'01' * 16}     12    0  -            leading",
            f"     2  voter    127.0.0.1:9002  {'02' * 16}     11    1  40 ms ago    following",
            f"     3  voter    127.0.0.1:9003  {'03' * 16}     10    2  5000 ms ago  silent",
            f"     4  learner  127.0.0.1:9004  {'04' * 16}      9    3  -            never heard",
            "  Observer  Applied  Lag",
            "         9        8    3",
        ]
    )
    assert "MembershipChange: under way" in as_text(quorum(member(1, 1), changing=True))
    assert members_text((member(1, 1), member(2, 2, is_learner=True))) == "voters: 1; learners: 2"


def test_the_json_has_a_state_for_each_member() -> None:
    shown = as_json(FOUR)
    members = shown["members"]
    assert isinstance(members, list)
    assert [each["state"] for each in members] == ["leading", "following", "silent", "never heard"]
    assert members[3]["directory_uuid"] == "04" * 16
    assert shown["observers"] == [{"node_id": 9, "applied_index": 8, "lag": 3}]


def test_addresses_and_voters_are_read_as_they_are_typed() -> None:
    assert address("[::1]:9193") == "[::1]:9193"
    uuid = "0b6b79d2-8a1e-4b1c-9f5e-1d2c3b4a5f60"
    (voter,) = initial_voters(f"3@node-3.example:9193/{uuid}")
    assert voter.node_id == 3
    assert voter.address == "node-3.example:9193"
    assert voter.directory_uuid.hex() == uuid.replace("-", "")
