"""The fuzzer of a data directory: a slice of it, and that it sees what it is there to see."""

from random import Random

import pytest

from tidelog.broker.log.reading.verify import Walk
from tidelog.chaos.fuzz import log_files
from tidelog.chaos.fuzz.log_corpus import KEYS, Corpus, build_corpora
from tidelog.chaos.fuzz.log_damage import SECTOR_BYTES, damage

CASES = 80
SEED = 11
KINDS = {
    "segment, active",
    "segment, sealed",
    "segment, compacted",
    "sidecar, summary",
    "sidecar, index",
    "sidecar, index_top",
    "sidecar, digests",
    "sidecar, producers",
    "marks",
    "log_checkpoint",
    "node.json",
    "clean_shutdown.json",
    "starts",
    "unfinished",
}


@pytest.fixture(scope="module")
def corpora() -> tuple[Corpus, ...]:
    return build_corpora(SEED)


@pytest.mark.slow
def test_the_directories_have_every_kind_of_file(corpora: tuple[Corpus, ...]) -> None:
    assert {kind for corpus in corpora for kind in corpus.kinds} == KINDS
    for corpus in corpora:
        assert all(corpus.contents[key] for key in KEYS)


@pytest.mark.slow
def test_damage_is_one_bit_one_cut_or_one_sector(corpora: tuple[Corpus, ...]) -> None:
    changes = []
    for index in range(200):
        corpus = corpora[index % 2]
        done = damage(corpus, Random(index))
        whole = corpus.files[done.path]
        assert done.content != whole
        changes.append(done.change)
        if done.change == "truncate":
            assert whole.startswith(done.content)
            continue
        places = [at for at, byte in enumerate(whole) if byte != done.content[at]]
        if done.change == "flip":
            assert places == [done.byte_position]
            assert (whole[places[0]] ^ done.content[places[0]]).bit_count() == 1
        else:
            assert len({at // SECTOR_BYTES for at in places}) == 1
    assert changes.count("flip") >= 100


@pytest.mark.slow
def test_damage_is_told_of_or_harms_nobody(corpora: tuple[Corpus, ...]) -> None:
    counts, wrong, on_real_files = log_files.run_many(corpora, SEED, 0, CASES, real_share=40)
    told = [f"case {index}: {each.damage}: {each.wrong}" for index, each in wrong]
    assert not told, told
    assert counts["all", "detected"] > CASES // 3
    assert counts["all", "harmless"] > CASES // 10
    assert on_real_files == CASES // 40


@pytest.mark.slow
def test_a_reader_that_believes_every_batch_is_found_out(
    corpora: tuple[Corpus, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Walk, "verify", lambda walk: None)
    assert _is_wrong_served(corpora)


def _is_wrong_served(corpora: tuple[Corpus, ...]) -> bool:
    for index in range(200):
        random = Random(f"{SEED}:{index}")
        done = damage(random.choice(corpora), random)
        if done.kind != "segment, sealed" or done.change != "flip":
            continue
        outcome = log_files.run_one(corpora, SEED, index)
        if any("wrong bytes served" in each for each in outcome.wrong):
            return True
    return False
