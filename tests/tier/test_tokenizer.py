"""The tokenizer file is what its script writes; prompts of the workload have the seeds' lengths; any text and any ids are taken."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.tier_tokenizer import PATH, SPECIALS, VOCABULARY, train
from harness.tier.reference.config import SIZES
from harness.tier.reference.network import PLACEHOLDER
from harness.tier.reference.tokenizer import TierTokenizer
from harness.tier.workload import Workload

TOKENIZER = TierTokenizer()


def test_the_file_is_what_its_script_writes():
    assert json.loads(PATH.read_text()) == json.loads(train().to_str())


def test_it_suits_the_networks():
    assert TOKENIZER.vocabulary == VOCABULARY
    assert all(size.vocabulary >= VOCABULARY for size in SIZES.values())
    assert SPECIALS[PLACEHOLDER] == "<media>"


def lengths(encode):
    workload = Workload()
    return [len(encode(workload.prompt(number))) for number in range(workload.prompts_most)]


def check_lengths(found):
    workload = Workload()

    assert all(workload.prompt_least <= length <= workload.prompt_most for length in found)
    assert abs(sum(found) / len(found) - workload.prompt_tokens) < 0.05 * workload.prompt_tokens


def test_prompts_of_the_workload_have_the_seeds_lengths():
    check_lengths(lengths(TOKENIZER.encode))


@pytest.mark.parametrize("wrong", [lambda text: text, lambda text: text.split(), lambda text: TOKENIZER.encode(text.replace(".", " . "))])
def test_other_lengths_are_seen(wrong):
    with pytest.raises(AssertionError):
        check_lengths(lengths(wrong))


@given(st.text())
def test_text_comes_back(text):
    ids = TOKENIZER.encode(text)

    assert TOKENIZER.decode(ids) == text
    assert all(len(SPECIALS) <= id_ < VOCABULARY for id_ in ids)


@pytest.mark.parametrize("special", SPECIALS)
def test_the_name_of_a_special_token_is_plain_text(special):
    assert TOKENIZER.decode(TOKENIZER.encode(f"a{special}b")) == f"a{special}b"
    assert len(TOKENIZER.encode(special)) > 1


def test_ids_without_a_text_are_told_apart():
    assert TOKENIZER.decode((0, 2, 600, 201087)) == "<0><2><600><201087>"


def test_bytes_that_are_no_text_are_told_apart():
    pieces = {TOKENIZER.decode((id_,)) for id_ in range(VOCABULARY)}

    assert len(pieces) == VOCABULARY


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"fixtures\.tier_tokenizer"):
        TierTokenizer(tmp_path / "tokenizer.json")
