"""A decision made anew differs from the session's only where rounding cannot be why."""

import torch

from harness.duplex.reference.once import standing

WIDE = torch.tensor([[0.0, 1.0, 2.0, 1.9999]] * 3, dtype=torch.float64)


def narrow(error):
    """The same scores, of which one is off."""
    scores = WIDE.clone()
    scores[0, 0] += error
    return scores.float()


def test_a_token_stands_that_is_as_good_up_to_rounding():
    assert standing(narrow(1e-4), WIDE, torch.tensor([3, 2, 1])).tolist() == [3, 2, 2]


def test_a_token_that_is_worse_than_rounding_explains_does_not_stand():
    assert standing(narrow(1e-5), WIDE, torch.tensor([3, 3, 3])).tolist() == [2, 2, 2]


def test_a_token_that_is_not_known_is_decided():
    assert standing(narrow(1e-4), WIDE, torch.tensor([4, 160, 4])).tolist() == [2, 2, 2]
