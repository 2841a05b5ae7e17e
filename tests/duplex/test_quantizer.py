"""A residual quantizer names the nearest entry at each stage, and learns to."""

import torch

from harness.duplex.reference.model import initialize
from harness.duplex.reference.quantizer import ResidualQuantizer
from tests.duplex.networks import generator

DIM, CODE_DIM, CARD, BOOKS = 12, 6, 16, 8


def quantizer():
    made = ResidualQuantizer(DIM, CODE_DIM, CARD, BOOKS)
    initialize(made, generator())
    return made.double()


def inputs(count=200):
    return torch.randn(count, DIM, generator=generator(1)).double()


def by_distance(made, x):
    """Stage by stage, every distance written out."""
    residual, codes = x @ made.project_in, []
    for book in made.books:
        nearest = (residual[:, None] - book).square().sum(-1).argmin(-1)
        codes.append(nearest)
        residual = residual - book[nearest]
    return torch.stack(codes, -1)


@torch.no_grad()
def test_each_stage_takes_the_nearest_entry_of_what_is_left():
    made, x = quantizer(), inputs()

    assert torch.equal(made.encode(x), by_distance(made, x))
    assert torch.equal(made.encode(x.view(10, 20, DIM)), by_distance(made, x).view(10, 20, BOOKS))


@torch.no_grad()
def test_another_quantizer_takes_others():
    made, x = quantizer(), inputs()
    other = quantizer()
    other.books[1] *= -1

    assert (made.encode(x) != by_distance(other, x)).any(0).tolist() == [False] + [True] * (BOOKS - 1)


@torch.no_grad()
def test_of_equals_the_first_is_taken():
    made = quantizer()
    made.books[:, 9] = made.books[:, 4]
    codes = made.encode(inputs())

    assert (codes == 4).any()
    assert not (codes == 9).any()


@torch.no_grad()
def test_decoding_adds_the_entries():
    made = quantizer()
    codes = torch.randint(CARD, (3, BOOKS), generator=generator(2))
    total = sum(made.books[stage, codes[:, stage]] for stage in range(BOOKS))

    torch.testing.assert_close(made.decode(codes), total @ made.project_out, rtol=0, atol=1e-12)


@torch.no_grad()
def test_initial_tokens_are_decoded_as_the_last_entry():
    made = quantizer()
    assert torch.equal(made.decode(torch.full((1, BOOKS), CARD)), made.decode(torch.full((1, BOOKS), CARD - 1)))


@torch.no_grad()
def test_a_lost_row_loses_no_other():
    made, x = quantizer(), inputs(8)
    expected = made.encode(x)
    x[3] = torch.nan
    codes = made.encode(x)

    assert torch.equal(codes[[0, 1, 2, 4, 5, 6, 7]], expected[[0, 1, 2, 4, 5, 6, 7]])
    assert ((codes[3] >= 0) & (codes[3] < CARD)).all()


def test_training_gives_what_decoding_gives_and_passes_the_gradient_through():
    made, x = quantizer(), inputs().requires_grad_()
    quantized = made(x)
    quantized.output.sum().backward()

    torch.testing.assert_close(quantized.output, made.decode(made.encode(x)), rtol=0, atol=1e-12)
    assert torch.equal(quantized.codes, made.encode(x))
    torch.testing.assert_close(x.grad, (made.project_in @ made.project_out).sum(1).expand_as(x), rtol=0, atol=1e-12)
    assert made.books.grad is None


def test_the_loss_is_the_distance_at_every_stage():
    made, x = quantizer(), inputs()
    residual, total = x @ made.project_in, 0.0
    for book, codes in zip(made.books, made.encode(x).unbind(-1), strict=True):
        total += 1.25 * (residual - book[codes]).square().mean()
        residual = residual - book[codes]

    torch.testing.assert_close(made(x).loss, total, rtol=1e-12, atol=0)


def test_a_step_down_its_gradient_makes_it_smaller():
    made, x = quantizer(), inputs()
    before = made(x).loss
    before.backward()
    squares = sum(parameter.grad.square().sum() for parameter in (made.books, made.project_in))
    with torch.no_grad():
        for parameter in (made.books, made.project_in):
            parameter.sub_(1e-6 * parameter.grad)
    # To first order the loss falls by the step times the square of the gradient; codes may change, and only for nearer ones.
    assert made(x).loss < before - 0.5e-6 * squares


@torch.no_grad()
def test_seeded_books_are_what_the_stages_see():
    made, x = quantizer(), inputs()
    made.seed_books(x, generator(4))
    residual = x @ made.project_in
    for book, codes in zip(made.books, made.encode(x).unbind(-1), strict=True):
        assert (book[:, None] == residual).all(-1).any(-1).all()
        residual = residual - book[codes]
