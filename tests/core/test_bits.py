"""Bit equality: every wrong bit is found where it is, and nothing else is."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.bits import NEAR_ULP, Divergence, first_divergence, pattern, ulp_distance

FLOATS = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor):
    """The storage of a contiguous tensor, as integers: what these tests flip bits in."""
    return tensor.view(AS_INTEGER[tensor.element_size()])


def flipped(tensor, at, bit):
    """A copy with one bit of element `at` (row-major) changed."""
    copy = tensor.clone()
    width = 8 * copy.element_size()
    mask = (1 << bit) - ((1 << width) if bit == width - 1 and width > 8 else 0)
    bits_of(copy).reshape(-1)[at] ^= mask
    return copy


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, *COMPLEX], ids=str)
def test_equal_bits_do_not_diverge(dtype):
    """Two tensors with the same finite values have no divergence, and one other value is one."""
    values = torch.tensor([[1, 2, 4], [2, 1, 1]]).to(dtype)
    other = torch.tensor([[1, 2, 4], [2, 4, 1]]).to(dtype)

    assert first_divergence(values, values.clone()) is None
    found = first_divergence(other, values)
    assert (found.index, found.differing, found.total) == ((1, 1), 1, 6)


@given(
    dtype=st.sampled_from(FLOATS),
    shape=st.lists(st.integers(1, 3), min_size=0, max_size=3),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_any_single_bit_is_found_at_its_index(dtype, shape, data):
    """Whichever bit of whichever element is flipped, the divergence is there, and there alone; both ways round."""
    size = math.prod(shape)
    expected = (
        torch.tensor(data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=size, max_size=size))).to(dtype).reshape(shape)
    )
    at = data.draw(st.integers(0, size - 1))
    got = flipped(expected, at, data.draw(st.integers(0, 8 * expected.element_size() - 1)))

    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), shape)) if shape else (0,)
    for one, two in ((got, expected), (expected, got)):
        found = first_divergence(one, two)
        assert (found.index, found.differing, found.total) == (index, 1, size)
    assert first_divergence(expected, expected.clone()) is None


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_any_pattern_equals_itself_and_nothing_else(raw):
    """Arbitrary bits, NaNs and infinities among them: without `finite` they equal a copy; with it, only if all are finite."""
    values = torch.tensor(raw, dtype=torch.int32).view(torch.float32)

    assert first_divergence(values, values.clone(), finite=False) is None
    assert (first_divergence(values, values.clone()) is None) == bool(torch.isfinite(values).all())


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=str)
def test_integers_and_booleans_are_named_by_value(dtype):
    """An integer divergence shows the values, without bits or ulp."""
    found = first_divergence(torch.tensor([1, 1]).to(dtype), torch.tensor([1, 0]).to(dtype))

    one, zero = ("True", "False") if dtype is torch.bool else ("1", "0")
    assert found == Divergence((1,), one, zero, differing=1, total=2, ulp=None)


def test_the_zeros_differ():
    """-0.0 equals 0.0 as a number and not as bits."""
    found = first_divergence(torch.tensor([1.0, -0.0]), torch.tensor([1.0, 0.0]))

    assert found == Divergence((1,), "0x80000000 (-0)", "0x00000000 (0)", differing=1, total=2, ulp=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.complex64], ids=str
)
def test_equal_values_that_are_not_finite_diverge(dtype, value):
    """A NaN or an infinity on both sides is a divergence, with no ulp; `finite=False` accepts it."""
    both = torch.tensor([1.0, value]).to(dtype)

    found = first_divergence(both, both.clone())
    assert (found.index, found.differing, found.ulp) == ((1,), 1, None)
    assert first_divergence(both, both.clone(), finite=False) is None


@pytest.mark.parametrize("part", [0, 1])
def test_a_complex_number_diverges_in_either_part(part):
    """Complex numbers are two floats: a flip in the real or in the imaginary part is found and shown with both parts' bits."""
    expected = torch.tensor([1 + 1j, 1 + 1j], dtype=torch.complex64)
    got = torch.view_as_complex(flipped(torch.view_as_real(expected), 2 + part, 22).contiguous())

    found = first_divergence(got, expected)
    shown = ["0x3fc00000 0x3f800000 (1.5+1j)", "0x3f800000 0x3fc00000 (1+1.5j)"][part]
    assert found == Divergence((1,), shown, "0x3f800000 0x3f800000 (1+1j)", differing=1, total=2, ulp=None)


def test_complex_zeros_differ():
    """The sign of a zero counts in each part."""
    zero = torch.zeros(1, dtype=torch.complex64)

    assert first_divergence(zero, zero.clone()) is None
    assert first_divergence(torch.complex(torch.zeros(1), torch.tensor([-0.0])), zero).index == (0,)


def test_lazy_conjugates_and_negations_are_resolved():
    """A tensor that torch has yet to conjugate or negate is compared by what it says it holds."""
    lazy = torch.tensor([1 + 2j]).conj()

    assert first_divergence(lazy, torch.tensor([1 - 2j])) is None
    assert first_divergence(lazy, torch.tensor([1 + 2j])).index == (0,)
    assert first_divergence(lazy.imag, torch.tensor([-2.0])) is None
    assert first_divergence(lazy.imag, torch.tensor([2.0])).got == "0xc0000000 (-2)"


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (torch.zeros(3), "float32[3]"),
        (torch.zeros(2, 1), "float32[2, 1]"),
        (torch.zeros(2).double(), "float64[2]"),
        (torch.tensor(0.0), "float32[]"),
    ],
    ids=["longer", "rank", "dtype", "scalar"],
)
def test_another_shape_or_dtype_diverges_as_a_whole(got, said):
    """Nothing is broadcast or cast: the whole tensor is the divergence."""
    found = first_divergence(got, torch.zeros(2))

    assert (found.index, found.got, found.expected, found.total) == ((), said, "float32[2]", 2)
    assert (found.at(), found.extent()) == ("", "the whole tensor")


def test_a_signed_and_an_unsigned_view_of_the_same_bytes_differ():
    """The dtype is part of the value."""
    found = first_divergence(torch.zeros(2, dtype=torch.int8), torch.zeros(2, dtype=torch.uint8))

    assert (found.got, found.expected) == ("int8[2]", "uint8[2]")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64], ids=str)
def test_empty_tensors_compare_by_shape(dtype):
    """Without values, shape is all there is."""
    assert first_divergence(torch.empty(0, 3, dtype=dtype), torch.empty(0, 3, dtype=dtype)) is None
    assert first_divergence(torch.empty(0, 3, dtype=dtype), torch.empty(0, 4, dtype=dtype)).index == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_a_scalar_diverges_at_its_one_value(dtype):
    """A 0-d tensor counts as one value."""
    one = torch.tensor(1).to(dtype)

    assert first_divergence(one, one.clone()) is None
    found = first_divergence(one, torch.tensor(0).to(dtype))
    assert (found.index, found.differing, found.total) == ((0,), 1, 1)


def test_views_compare_by_what_they_show():
    """Strides do not matter: a transpose equals its contiguous copy, and the index is that of the view."""
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])

    assert first_divergence(rows.T, torch.tensor([[1.0, 3.0], [2.0, 4.0]])) is None
    found = first_divergence(rows.T, torch.tensor([[1.0, 3.0], [2.5, 4.0]]))
    assert (found.index, found.got) == ((1, 0), "0x40000000 (2)")
    assert first_divergence(torch.zeros(1, 2).expand(3, 2), torch.zeros(3, 2)) is None
    assert first_divergence(torch.arange(6.0)[::2], torch.tensor([0.0, 2.0, 4.0])) is None


def test_gradients_do_not_matter():
    """A parameter is compared by its values."""
    weight = torch.nn.Parameter(torch.ones(2))

    assert first_divergence(weight, torch.ones(2)) is None
    assert first_divergence(weight * 2, torch.ones(2)).index == (0,)


def test_the_first_of_several_is_shown_and_all_are_counted():
    """Row-major order decides which is first."""
    got, expected = torch.zeros(2, 3), torch.zeros(2, 3)
    got[1, 0] = got[0, 2] = got[1, 2] = 1.0

    found = first_divergence(got, expected)
    assert (found.index, found.differing, found.total) == ((0, 2), 3, 6)


@pytest.mark.parametrize(
    ("dtype", "got", "expected"),
    [
        (torch.float64, "0x3ff0000000000000 (1)", "0xc000000000000000 (-2)"),
        (torch.float32, "0x3f800000 (1)", "0xc0000000 (-2)"),
        (torch.bfloat16, "0x3f80 (1)", "0xc000 (-2)"),
        (torch.float16, "0x3c00 (1)", "0xc000 (-2)"),
        (torch.float8_e4m3fn, "0x38 (1)", "0xc0 (-2)"),
    ],
    ids=str,
)
def test_values_are_shown_with_their_bits(dtype, got, expected):
    """All the digits of the width, a negative pattern without a minus sign."""
    found = first_divergence(torch.tensor([1.0]).to(dtype), torch.tensor([-2.0]).to(dtype))

    assert (found.got, found.expected) == (got, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("start", [1.0, -1.0, 0.0])
def test_a_neighbour_is_one_ulp_away(dtype, start):
    """Next to a value, on either side and across zero, is one step; the distance is symmetric."""
    value = torch.tensor(start, dtype=dtype)
    above = torch.nextafter(
        value.double() if dtype is torch.float16 else value, torch.tensor(9.0, dtype=torch.float64 if dtype is torch.float16 else dtype)
    )
    if dtype is torch.float16:
        above = bits_of(value.reshape(1)).add(-1 if start < 0 else 1).view(dtype)[0]

    assert ulp_distance(value, above) == ulp_distance(above, value) == 1
    assert ulp_distance(value, value) == 0


def test_ulp_counts_across_the_sign():
    """The zeros are one point, and the smallest values beside it are two steps apart."""
    tiny = torch.tensor(2.0**-149)

    assert ulp_distance(torch.tensor(0.0), torch.tensor(-0.0)) == 0
    assert ulp_distance(tiny, -tiny) == 2
    assert ulp_distance(tiny, torch.tensor(-0.0)) == 1
    assert ulp_distance(torch.tensor(1.0), torch.tensor(-1.0)) == 2 * 0x3F800000


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16], ids=str)
def test_ulp_counts_every_finite_value_once(dtype):
    """Narrow enough to list: the finite values in order are one step apart."""
    patterns = (
        torch.arange(256, dtype=torch.int32).to(torch.uint8) if dtype.itemsize == 1 else torch.arange(0x3F00, 0x4000, dtype=torch.int16)
    )
    values = patterns.view(dtype)
    ordered = sorted({float(v) for v in values if math.isfinite(float(v))})
    steps = [ulp_distance(torch.tensor(a).to(dtype), torch.tensor(b).to(dtype)) for a, b in itertools.pairwise(ordered)]

    assert len(steps) > 100
    assert set(steps) == {1}


def test_ulp_of_a_dtype_without_sign():
    """float8_e8m0fnu holds exponents only: its highest bit is no sign."""
    one, two = (torch.tensor(v).to(torch.float8_e8m0fnu) for v in (1.0, 2.0))

    assert ulp_distance(one, two) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_ulp_without_finite_floats(value):
    """Neither for integers nor for what is not finite, on either side."""
    one, other = torch.tensor(1.0), torch.tensor(value)

    assert ulp_distance(one, other) is ulp_distance(other, one) is None
    assert ulp_distance(torch.tensor(1), torch.tensor(2)) is None


def test_pattern_keeps_shape_and_tells_bits():
    """The integers are as wide as the values; complex numbers gain an axis of two."""
    assert pattern(torch.tensor([[1.0, -0.0]])).tolist() == [[0x3F800000, -(2**31)]]
    assert pattern(torch.tensor([1.0]).half()).dtype is torch.int16
    assert pattern(torch.tensor([True, False])).tolist() == [1, 0]
    assert pattern(torch.zeros(3, dtype=torch.complex64)).shape == (3, 2)


def test_an_index_is_named_by_its_axes():
    """With as many names as axes; otherwise by number."""
    found = Divergence((3, 0, 7), "", "", 1, 1)

    assert found.at(["token", "head", "dim"]) == "token 3, head 0, dim 7"
    assert found.at(["token"]) == found.at() == "axis 0 3, axis 1 0, axis 2 7"


@pytest.mark.parametrize(
    ("ulp", "said"),
    [
        (None, "2/9 values"),
        (1, "2/9 values; the first by 1 ulp"),
        (NEAR_ULP, "2/9 values; the first by 4096 ulp"),
        (NEAR_ULP + 1, "2/9 values"),
    ],
)
def test_the_extent_gives_ulp_only_where_near(ulp, said):
    """A distance that is no rounding says nothing to a reader."""
    assert Divergence((0,), "", "", differing=2, total=9, ulp=ulp).extent() == said
