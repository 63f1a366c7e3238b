"""The active controller over a fake quorum: order, pipelining, lost leadership."""

import asyncio

import pytest

from tests.metadata_quorum.active.controller_world import ONE_AT_A_TIME, Scene, run, value_of
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import BeginRecord, ClusterConfigurationRecord, encode_entry
from tidelog.metadata_quorum.active.limits import ActiveLimits
from tidelog.metadata_quorum.active.writes import Written
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex


class Outcomes:
    """What became of writes that run beside each other, by name."""

    def __init__(self) -> None:
        self.answers: dict[str, Written[str]] = {}
        self.errors: dict[str, ErrorCode] = {}

    async def keep(self, scene: Scene, name: str, value: str) -> None:
        """Write, and remember how it ended."""
        try:
            self.answers[name] = await scene.set(name, value)
        except TidelogError as error:
            self.errors[name] = error.code


async def refused(scene: Scene) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        await scene.set("a", "1")
    return caught.value


def test_a_follower_refuses_and_names_the_leader() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.step_down(2, keeps=False)
        error = await refused(scene)
        assert error.code is ErrorCode.NOT_CONTROLLER
        assert error.hint == "Ask node 2 at n2:1."

    run(work)


def test_a_leader_writes_nothing_but_the_empty_entry_of_its_term() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.step_down(2, keeps=True)
        await asyncio.sleep(1)
        entries = len(scene.quorum.entries)
        scene.quorum.lead()
        await scene.wait_active()
        assert len(scene.quorum.entries) == entries + 1

    run(work)


def test_a_write_is_visible_in_the_image_of_the_index_that_it_returns() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        written = await scene.set("a", "1")
        assert written.index == scene.controller.image().version
        assert value_of(scene.controller.image(), "a") == "1"

    run(work)


@pytest.mark.parametrize("seed", range(20))
def test_writes_are_proposed_in_the_order_in_which_they_were_asked_for(seed: int) -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        outcomes = Outcomes()
        async with TaskScope() as scope:
            for number in range(200):
                scope.start(outcomes.keep(scene, f"k{number % 7}", str(number)), name="w")
                if number % 3 == 0:
                    await asyncio.sleep(0.0003)
        assert outcomes.errors == {}
        assert len(outcomes.answers) == 7
        assert scene.controller.image() == scene.machine.image()

    run(work, seed=seed, commit_ms=3)


def test_small_writes_of_one_moment_share_an_entry() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        before = len(scene.quorum.entries)
        outcomes = Outcomes()
        async with TaskScope() as scope:
            for number in range(60):
                scope.start(outcomes.keep(scene, f"k{number}", "1"), name="w")
        assert len(outcomes.answers) == 60
        assert len(scene.quorum.entries) - before <= 3

    run(work)


def test_a_large_write_is_seen_whole_or_not_at_all() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = None
        records = tuple(
            ClusterConfigurationRecord(changes={f"k{number}": "x" * 100}) for number in range(100)
        )
        outcomes: list[Written[int]] = []

        async def large() -> None:
            decision = Decision(records=records, answer=7)
            outcomes.append(
                await scene.controller.write(
                    lambda _: decision, tried="set many", timeout_ms=60_000
                )
            )

        async with TaskScope() as scope:
            scope.start(large(), name="large")
            before = len(scene.quorum.entries)
            await asyncio.sleep(0.1)
            last = len(scene.quorum.entries)
            assert last - before > 5, "a group of entries is in flight at once"
            for index in range(before + 1, last):
                scene.quorum.commit_to(LogIndex(index))
                assert value_of(scene.controller.image(), "k0") == ""
            assert outcomes == []
            scene.quorum.commit_to(LogIndex(last))
            assert value_of(scene.controller.image(), "k99") == "x" * 100
        assert outcomes[0].answer == 7

    run(work, limits=ActiveLimits(entry_bytes_max=2_000))


def test_a_new_leader_aborts_a_group_that_another_left_open() -> None:
    async def work(scene: Scene) -> None:
        group = (BeginRecord(name="half"), ClusterConfigurationRecord(changes={"a": "half"}))
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.step_down(2, keeps=True)
        await asyncio.sleep(1)
        scene.quorum.lead(before=[encode_entry(group)])
        await scene.wait_active()
        assert not scene.machine.has_open_group()
        await scene.set("b", "1")
        assert value_of(scene.controller.image(), "a") == ""

    run(work)


def test_writes_decide_against_what_was_proposed_before_them_and_is_not_committed() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = 500

        def increment(image: Image) -> Decision[str]:
            value = str(int(value_of(image, "n") or "0") + 1)
            return Decision(
                records=(ClusterConfigurationRecord(changes={"n": value}),), answer=value
            )

        answers: list[str] = []

        async def one() -> None:
            written = await scene.controller.write(increment, tried="add", timeout_ms=60_000)
            answers.append(written.answer)

        async with TaskScope() as scope:
            for _ in range(50):
                scope.start(one(), name="one")
                await asyncio.sleep(0.01)
        assert sorted(answers, key=int) == [str(each) for each in range(1, 51)]
        assert value_of(scene.controller.image(), "n") == "50"

    run(work)


def test_an_answer_that_changes_nothing_waits_for_what_it_was_decided_upon() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = None
        outcomes = Outcomes()
        answers: list[str] = []

        async def read() -> None:
            answers.append((await scene.read("a")).answer)

        async with TaskScope() as scope:
            scope.start(outcomes.keep(scene, "a", "1"), name="write")
            await asyncio.sleep(0.01)
            scope.start(read(), name="read")
            await asyncio.sleep(1)
            assert answers == []
            scene.quorum.commit_to(LogIndex(len(scene.quorum.entries)))
        assert answers == ["1"]
        assert "read_index" in scene.quorum.calls

    run(work)


def test_a_leader_that_nobody_hears_answers_nothing_from_its_image() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.is_cut_off = True
        with pytest.raises(TidelogError) as caught:
            await scene.read("a")
        assert caught.value.code is ErrorCode.UNAVAILABLE

    run(work)


@pytest.mark.parametrize("keeps", [True, False])
def test_lost_leadership_tells_each_writer_what_is_known(keeps: bool) -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.set("before", "1")
        scene.quorum.commit_ms = None
        outcomes = Outcomes()
        async with TaskScope() as scope:
            scope.start(outcomes.keep(scene, "proposed", "1"), name="proposed")
            await asyncio.sleep(0.01)
            scope.start(outcomes.keep(scene, "queued", "1"), name="queued")
            await asyncio.sleep(0.01)
            scene.quorum.step_down(3, keeps=keeps)
        assert outcomes.errors == {
            "proposed": ErrorCode.INDETERMINATE,
            "queued": ErrorCode.NOT_CONTROLLER,
        }
        assert (await refused(scene)).hint == "Ask node 3 at n3:1."
        scene.quorum.commit_ms = 1
        scene.quorum.lead()
        await scene.wait_active()
        expected = "1" if keeps else ""
        assert value_of(scene.controller.image_ahead(), "proposed") == expected
        assert (await scene.read("queued")).answer == ""

    run(work, limits=ONE_AT_A_TIME)


def test_a_refused_proposal_in_a_term_that_goes_on_begins_again_from_what_is_applied() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.refusal = TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED, tried="propose", happened="too much at once"
        )
        assert (await refused(scene)).code is ErrorCode.RESOURCE_EXHAUSTED
        assert value_of(scene.controller.image_ahead(), "a") == ""
        written = await scene.set("a", "2")
        assert written.answer == "2"
        assert value_of(scene.controller.image(), "a") == "2"

    run(work)


def test_a_caller_that_gives_up_does_not_stop_its_write() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = 200
        with pytest.raises(TidelogError) as caught:
            await scene.set("a", "1", timeout_ms=50)
        assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
        await asyncio.sleep(1)
        assert value_of(scene.controller.image(), "a") == "1"

    run(work)


def test_the_queue_is_bounded() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = None
        outcomes = Outcomes()
        async with TaskScope() as scope:
            scope.start(outcomes.keep(scene, "first", "1"), name="w")
            await asyncio.sleep(0.1)
            for number in range(101):
                scope.start(outcomes.keep(scene, f"k{number}", "1"), name="w")
            await asyncio.sleep(0.1)
            assert list(outcomes.errors.values()) == [ErrorCode.RESOURCE_EXHAUSTED]
            scene.quorum.commit_ms = 1
            scene.quorum.commit_to(LogIndex(len(scene.quorum.entries)))
        assert len(outcomes.answers) == 101

    run(work, limits=ONE_AT_A_TIME)


def test_nothing_is_in_flight_while_the_leadership_is_handed_over() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = 300
        outcomes = Outcomes()
        async with TaskScope() as scope:
            scope.start(outcomes.keep(scene, "before", "1"), name="before")
            await asyncio.sleep(0.01)
            async with scene.controller.hold():
                scope.start(outcomes.keep(scene, "after", "1"), name="after")
                await scene.quorum.transfer(None, timeout_ms=1_000)
        assert list(outcomes.answers) == ["before"]
        assert outcomes.errors == {"after": ErrorCode.NOT_CONTROLLER}

    run(work)


def test_the_end_of_the_quorum_ends_the_controller_in_order() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = None
        outcomes = Outcomes()
        async with TaskScope() as scope:
            scope.start(outcomes.keep(scene, "a", "1"), name="a")
            await asyncio.sleep(0.01)
            scene.quorum.end()
        assert outcomes.errors == {"a": ErrorCode.INDETERMINATE}
        assert (await refused(scene)).code is ErrorCode.UNAVAILABLE

    run(work)


def test_what_was_decided_upon_a_refused_proposal_is_never_committed() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.refusal_takes_ms = 20
        scene.quorum.refusal = TidelogError(
            ErrorCode.UNAVAILABLE, tried="propose", happened="the leadership is being handed over"
        )
        outcomes = Outcomes()
        async with TaskScope() as scope:
            for name in ("a", "b"):
                scope.start(outcomes.keep(scene, name, "1"), name=name)
                await asyncio.sleep(0.005)
        assert outcomes.errors == dict.fromkeys(("a", "b"), ErrorCode.UNAVAILABLE)
        await scene.set("d", "1")
        assert value_of(scene.controller.image(), "b") == ""
        assert scene.controller.image_ahead() == scene.controller.image()

    run(work)


@pytest.mark.parametrize("seed", range(8))
def test_a_write_cut_short_by_lost_leadership_has_an_outcome_at_once(seed: int) -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        scene.quorum.commit_ms = None
        scene.quorum.steps_down_after = 3
        records = tuple(
            ClusterConfigurationRecord(changes={f"k{number}": "x" * 100}) for number in range(100)
        )
        with pytest.raises(TidelogError) as caught:
            await scene.controller.write(
                lambda _: Decision(records=records, answer=7), tried="set many", timeout_ms=60_000
            )
        assert caught.value.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.UNAVAILABLE)
        scene.quorum.commit_ms = 1
        scene.quorum.lead()
        await scene.wait_active()
        assert value_of(scene.controller.image(), "k0") == ""

    run(work, seed=seed, limits=ActiveLimits(entry_bytes_max=2_000))


MANY = tuple(ClusterConfigurationRecord(changes={f"k{number}": "1"}) for number in range(100))
IN_SLICES = ActiveLimits(applied_records_max=10)


def test_others_run_while_a_large_write_is_decided() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        turns: list[str] = []

        def decide(_: Image) -> Decision[int]:
            async def other() -> None:
                while "propose" not in scene.quorum.calls:
                    turns.append("other")
                    await asyncio.sleep(0)

            scene.quorum.calls.clear()
            scope.start(other(), name="other")
            return Decision(records=MANY, answer=7)

        async with TaskScope() as scope:
            await scene.controller.write(decide, tried="set many", timeout_ms=60_000)
        assert len(turns) >= 5
        assert value_of(scene.controller.image(), "k99") == "1"

    run(work, limits=IN_SLICES)


def test_leadership_lost_while_a_large_write_is_decided_leaves_nothing_of_it() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()

        def decide(_: Image) -> Decision[int]:
            asyncio.get_running_loop().call_soon(lambda: scene.quorum.step_down(2, keeps=True))
            return Decision(records=MANY, answer=7)

        with pytest.raises(TidelogError) as caught:
            await scene.controller.write(decide, tried="set many", timeout_ms=60_000)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        scene.quorum.lead()
        await scene.wait_active()
        assert value_of(scene.controller.image_ahead(), "k0") == ""

    run(work, limits=ActiveLimits(applied_records_max=1))


def test_what_is_decided_when_a_hand_over_begins_is_proposed_after_it() -> None:
    async def work(scene: Scene) -> None:
        scene.quorum.lead()
        await scene.wait_active()
        entered = asyncio.Event()

        def decide(_: Image) -> Decision[int]:
            entered.set()
            return Decision(records=MANY, answer=7)

        async def write() -> None:
            await scene.controller.write(decide, tried="set many", timeout_ms=60_000)

        outcomes = Outcomes()
        async with TaskScope() as scope:
            scene.quorum.commit_ms = 300
            scope.start(outcomes.keep(scene, "a", "1"), name="in flight")
            await asyncio.sleep(0.01)
            scope.start(write(), name="write")
            await entered.wait()
            async with scene.controller.hold():
                before = len(scene.quorum.entries)
                await asyncio.sleep(1)
                assert list(outcomes.answers) == ["a"]
                assert len(scene.quorum.entries) == before
        assert value_of(scene.controller.image(), "k99") == "1"

    run(work, limits=ActiveLimits(applied_records_max=1))
