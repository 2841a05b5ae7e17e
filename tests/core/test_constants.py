"""`--set kind.name=value`: applied, typed, and refused with the nearest name."""

import pytest

from harness.core.constants import workloads
from harness.duplex.workload import Workload as DuplexWorkload
from harness.tier.workload import Workload as TierWorkload
from harness.transfer.workload import Workload


def test_nothing_set_is_the_defaults():
    """Every kind has its workload."""
    assert workloads([]) == {"duplex": DuplexWorkload(), "tier": TierWorkload(), "transfer": Workload()}


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("transfer.layers=3", "layers", 3),
        ("transfer.receive_timeout=0.5", "receive_timeout", 0.5),
        ("transfer.receive_timeout=2", "receive_timeout", 2.0),
        ("transfer.host=::1", "host", "::1"),
        ("transfer.host=a=b", "host", "a=b"),
    ],
)
def test_the_default_says_how_a_value_is_read(setting, name, value):
    """One constant changes, in the type of its default."""
    load = workloads([setting])["transfer"]

    assert load == Workload(**{name: value})
    assert type(getattr(load, name)) is type(getattr(Workload(), name))


def test_settings_apply_together_and_the_last_wins():
    """Constants that must fit each other can be set in any order; the other kinds keep their defaults."""
    settings = ["transfer.seq_len=40", "transfer.blocks=10"]
    others = {"duplex": DuplexWorkload(), "tier": TierWorkload()}

    assert workloads(settings) == workloads(settings[::-1]) == {**others, "transfer": Workload(seq_len=40, blocks=10)}
    assert workloads(["transfer.port=1", "transfer.port=2"])["transfer"].port == 2


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("transfer.layers", "--set 'transfer.layers': write kind.name=value"),
        ("transfer=3", "--set 'transfer=3': write kind.name=value"),
        ("transfer.=3", "--set 'transfer.=3': write kind.name=value"),
        ("", "--set '': write kind.name=value"),
        ("transfr.layers=3", "--set 'transfr.layers=3': unknown kind 'transfr'; nearest: transfer"),
        ("transfer.layer=3", "--set 'transfer.layer=3': unknown constant 'layer'; nearest: layers, many_layers"),
        ("transfer.layers=two", "--set 'transfer.layers=two': 'two' is no int"),
        ("transfer.layers=", "--set 'transfer.layers=': '' is no int"),
        ("transfer.layers=0", "--set transfer.layers=0: layers, heads and head_dim are at least 1, many_layers at least 11"),
        ("transfer.seq_len=21", "--set transfer.seq_len=21: seq_len = 21 does not fit 5 blocks of 4 tokens"),
    ],
)
def test_every_error_names_the_setting(setting, text):
    """What was given, what is wrong with it, and what there is."""
    with pytest.raises(ValueError, match="--set") as wrong:
        workloads([setting])

    assert str(wrong.value) == text


def test_settings_that_do_not_fit_each_other_are_all_named():
    """Neither of them is wrong alone."""
    with pytest.raises(ValueError, match=r"--set transfer\.seq_len=15 --set transfer\.blocks=3: seq_len = 15 does not fit"):
        workloads(["transfer.seq_len=15", "transfer.blocks=3"])
