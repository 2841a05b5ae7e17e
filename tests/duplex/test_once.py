"""A decision made anew differs from the session's only where rounding cannot be why."""

import torch

from harness.duplex.reference.once import best

SCORES = torch.tensor([[0.0, 1.0, 2.0, 1.9999], [0.0, 1.0, 2.0, 1.9999], [0.0, 1.0, 2.0, 1.9999]])


def test_a_token_stands_that_is_as_good_up_to_rounding():
    assert best(SCORES, torch.tensor([3, 2, 1]), 2.0**-12).tolist() == [3, 2, 2]


def test_a_token_that_is_worse_than_rounding_explains_does_not_stand():
    assert best(SCORES, torch.tensor([3, 3, 3]), 2.0**-16).tolist() == [2, 2, 2]


def test_rounding_goes_with_the_scores():
    assert best(1e-3 * SCORES, torch.tensor([3, 1, 0]), 2.0**-12).tolist() == [3, 2, 2]


def test_a_token_that_is_not_known_is_decided():
    assert best(SCORES, torch.tensor([4, 160, 4]), 2.0**-12).tolist() == [2, 2, 2]
