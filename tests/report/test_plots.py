"""Pictures: what is drawn is what was recorded, for every paper, and text of a record is never markup."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness.core import judge
from harness.report import plot_runs, plot_style, plots
from harness.report.benches import read_benches
from harness.report.plots import pictures
from harness.report.runs import Figure, RecordedRun, Series, UnreadableRun, read_run
from tests.report.test_diff import FAIL, result, run

RESULTS = Path(__file__).parents[2] / "ci/results"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script> $x^2$ \" onload='x' ]]> \u202e\x1b \U0001f984 --> _"
drawn = pytest.mark.skipif(not plot_style.can_draw(), reason="the extra `plot` is not installed")


def hidden(**fields):
    row = {"engine": "transfer/a", "device": "cpu", "size": 1 << 28, "fetch": 0.1, "waited": 0.001, "share": 0.99}
    return {**row, **fields}


def bench(kind, **fields):
    return {"schema": 1, "bench": kind, "device": "cpu", **fields}


def rate(**fields):
    return {"contestant": "connector/a", "size": 1 << 20, "put_get": 2.0 * (1 << 30), "of_plain": 0.5, **fields}


def pace(**fields):
    return {"engine": "duplex/a", "batch": 2, "median": 10.0, "p99": 12.0, "budget": 80.0, "floor": None, **fields}


def hit(**fields):
    return {"engine": "tier/a", "host": True, "load": 2.0, "prompts": 8, "ratio": 0.75, **fields}


RECORDS = {
    "pace": bench("duplex", paces=[pace(), pace(batch=4, p99=90.0, floor=1.0)]),
    "hits": bench("tier", hits=[hit(from_host=0.5), hit(host=False, ratio=0.25)]),
    "throughput": bench("transfer", rates=[rate(), rate(size=1 << 24)], hidden=[]),
    "prefetch": bench("transfer", rates=[], hidden=[hidden(), hidden(compute=0.15)]),
}


def diverged(points, *, slot=2, more=(), **fields):
    series = Series("tick", "log2", tuple(points))
    figures = (Figure(f"divergent ticks of slot {slot}", len(points), "ticks", None, series), *more)
    return result(FAIL, figures=figures, **fields)


def reused(host="on", **fields):
    figures = [Figure(f"round {n} reused, host tier {host}", value, "of the prompt tokens") for n, value in ((1, 0.0), (2, 0.9))]
    figures.append(Figure(f"round 2 from the host, host tier {host}", 0.8, "of the prompt tokens"))
    return result(claim="tier.rounds.reused", engine="tier/a", figures=tuple(figures), **fields)


RUN = run(diverged([(10.0, -3.5), (11.0, None)]), reused())


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("pace", ("duplex/a", "4", "10.00", "90.00", "1.00", "80")),
        ("hits", ("tier/a", "off", "2.00", "8", "0.250", "-")),
        ("throughput", ("connector/a", "16", "2.00", "50.0%")),
        ("prefetch", ("transfer/a", "cpu", "256", "100.00", "150.00", "1.00", "99.0%")),
    ],
)
def test_the_numbers_of_a_bench_stand_beside_its_picture(name, row):
    (picture,) = pictures([], [RECORDS[name]])

    assert picture.rows[-1] == row
    assert {len(own) for own in picture.rows} == {len(picture.columns)}


def test_the_numbers_of_a_run_stand_beside_its_pictures():
    apart, by_round = pictures([RUN], [])

    assert apart.rows == (("2", "2", "10", "-3.5"),)
    assert by_round.rows == (("on", "1", "0.000", "-"), ("on", "2", "0.900", "0.800"))


@pytest.mark.parametrize("name", RECORDS)
def test_nothing_measured_is_no_picture(name):
    lists = {key: [] for key, value in RECORDS[name].items() if isinstance(value, list)}

    assert pictures([], [{**RECORDS[name], **lists}]) == []


def test_slots_that_agree_are_no_picture():
    assert pictures([run(diverged([]))], []) == []
    assert len(pictures([run(diverged([(3.0, None)]))], [])) == 1


def test_a_run_in_which_all_fails_has_only_some_pictures():
    assert len(pictures([run(*[diverged([(1.0, 0.0)]) for _ in range(20)])], [])) == plot_runs.MOST


def test_hit_ratios_under_a_fault_are_not_the_engines():
    assert pictures([run(reused(fault="tier/loud"))], []) == []


@drawn
def test_the_same_figures_give_the_same_bytes():
    first, again = (pictures([RUN], RECORDS.values()) for _ in range(2))
    other = pictures([run(diverged([(10.0, -3.0), (11.0, None)]))], [])

    assert first == again
    assert other[0].svg != pictures([RUN], [])[0].svg


@drawn
def test_a_picture_is_one_element_with_ids_of_its_own_and_words_for_who_does_not_see_it():
    made = [ET.fromstring(picture.svg) for picture in pictures([RUN], RECORDS.values())]
    ids = [element.get("id") for root in made for element in root.iter() if element.get("id")]
    links = {value for root in made for e in root.iter() for key, value in e.attrib.items() if key.endswith("href")}

    assert len(ids) == len(set(ids))
    assert links <= {f"#{own}" for own in ids}
    assert {root.get("role") for root in made} == {"img"}
    assert made[0].get("aria-label") == "A tick by batch size, on cpu. 1 of 2 points keep the budget of 80 ms at the p99."


@drawn
def test_colours_are_those_of_the_page_or_keep_their_contrast():
    for picture in pictures([RUN], RECORDS.values()):
        assert "currentColor" in picture.svg
        assert not {"#000000", "#ffffff", "#010203"} & set(picture.svg.lower().replace(";", " ").replace('"', " ").split())


def test_colours_keep_three_to_one_on_light_paper_and_on_dark():
    """WCAG 2.1, 1.4.11: graphical objects. Black and white are the twins that do not."""
    papers = (plot_style.LIGHT, plot_style.DARK)

    assert min(plot_style.contrast(colour, paper) for colour in plot_style.COLOURS for paper in papers) >= 3
    assert plot_style.contrast("#000000", plot_style.DARK) < 3
    assert round(plot_style.contrast("#000000", "#ffffff"), 2) == 21


@drawn
def test_axes_say_what_they_are_and_in_what_unit():
    said = {name: texts(pictures([], [record])[0].svg) for name, record in RECORDS.items()}

    assert {"slots", "ms a tick (line: median, band: to the p99)"} <= set(said["pace"])
    assert {"payload, MiB", "put + get, GiB/s"} <= set(said["throughput"])
    assert "working set / device pool" in said["hits"]
    assert "ms" in said["prefetch"]


def hostile(text):
    records = [
        bench("duplex", paces=[pace(engine=text)]) | {"device": text},
        bench("tier", hits=[hit(engine=text)]),
        bench("transfer", rates=[rate(contestant=text)], hidden=[hidden(engine=text, device=text)]),
    ]
    return pictures([run(diverged([(1.0, 0.0)], claim=text, options=text), reused(options=text))], records)


@drawn
def test_hostile_names_stay_text():
    """The same elements as with a plain name, each with the attributes that we gave it, and the text itself is shown."""
    for wrong, plain in zip(hostile(HOSTILE), hostile("name"), strict=True):
        tags, harmless = ([e.tag for e in ET.fromstring(p.svg).iter()] for p in (wrong, plain))

        assert set(tags) == set(harmless)
        assert "<script" not in wrong.svg
        assert not any(key.startswith("on") for e in ET.fromstring(wrong.svg).iter() for key in e.attrib)
    assert any("<script>" in (text or "") for text in texts(hostile(HOSTILE)[0].svg))


@drawn
def test_a_name_with_two_dollars_is_no_formula():
    (picture,) = pictures([], [bench("duplex", paces=[pace(engine="duplex/$x^2$")])])

    assert "duplex/$x^2$" in texts(picture.svg)


def test_without_matplotlib_the_numbers_remain(monkeypatch):
    monkeypatch.setattr(plot_style, "find_spec", lambda _: None)
    made = pictures([RUN], RECORDS.values())

    assert {picture.svg for picture in made} == {""}
    assert all(picture.rows for picture in made)
    assert "pip install" in plots.WITHOUT


def test_the_recorded_benches_have_pictures():
    """Every bench record that is committed; the other JSON files beside them are no benches."""
    records = read_benches([RESULTS])

    assert {record["bench"] for record in records} == {"duplex", "tier", "transfer"}
    assert len(pictures([], records)) == 6


def written(path, record):
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return path


def test_a_record_is_read(tmp_path):
    (record,) = read_benches([written(tmp_path / "b.json", RECORDS["pace"])])

    assert record["paces"] == RECORDS["pace"]["paces"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("{", "give what assay bench KIND --json FILE wrote"),
        ([], "list, not an object"),
        ({"schema": 1}, "does not say which bench it is"),
        (bench("speed"), "bench 'speed'; this Assay reads duplex, tier, transfer"),
        ({**RECORDS["pace"], "schema": 9}, "schema 9"),
        (bench("duplex"), "paces is no list of objects"),
        (bench("duplex", paces=[1]), "paces is no list of objects"),
        (bench("duplex", paces=[pace(median="fast")]), r"paces\[0\].median is 'fast', not a finite number"),
        (bench("duplex", paces=[pace(), pace(p99=float("nan"))]), r"paces\[1\].p99 is 'nan'"),
        (bench("duplex", paces=[pace(batch=0)]), r"paces\[0\].batch is '0', not a finite number above 0"),
        (bench("duplex", paces=[pace(engine=None)]), r"paces\[0\].engine is 'None', not a text"),
        (bench("tier", hits=[hit(host=1)]), r"hits\[0\].host is '1', not true or false"),
    ],
)
def test_a_forged_record_is_told(tmp_path, record, said):
    path = written(tmp_path / "b.json", record)

    with pytest.raises(UnreadableRun, match=rf"^{path}: .*{said}"):
        read_benches([path])


@pytest.mark.parametrize(("extra", "readable"), [(None, True), (0.5, True), ("x", False), (float("inf"), False), (True, False)])
def test_fields_that_older_records_lack_are_checked_where_they_are(tmp_path, extra, readable):
    forged = [bench("tier", hits=[hit(from_host=extra)]), bench("transfer", rates=[], hidden=[hidden(compute=extra)])]
    for number, record in enumerate(forged):
        path = written(tmp_path / f"{number}.json", record)
        if readable:
            assert len(pictures([], read_benches([path]))) == 1
        else:
            with pytest.raises(UnreadableRun, match="not a finite number or null"):
                read_benches([path])


def test_a_series_that_is_none_is_told(tmp_path):
    figures = [{"name": "a", "value": 1, "unit": "b", "series": {"x": "a", "y": "b", "points": [[1, 2, 3]]}}]
    properties = [["schema", 2], ["verdict", "FAIL"], ["figures", json.dumps(figures)]]
    path = written(tmp_path / "r.jsonl", {"$report_type": "TestReport", "nodeid": "t", "user_properties": properties})

    with pytest.raises(UnreadableRun, match=rf"^{path}: t: "):
        read_run(path)


def test_a_series_is_read_back(tmp_path):
    told = judge.Judge()
    told.figure("a", 1, "b", series=judge.Series("tick", "log2", ((1.0, None), (2.0, -3.5))))
    properties = [["schema", 2], ["verdict", "FAIL"], ["figures", json.dumps([figure.record() for figure in told.figures])]]
    path = written(tmp_path / "r.jsonl", {"$report_type": "TestReport", "nodeid": "t", "user_properties": properties})

    (read,) = read_run(path).results
    assert read.figures == (Figure("a", 1, "b", None, Series("tick", "log2", ((1.0, None), (2.0, -3.5)))),)


def test_no_run_has_no_pictures():
    assert pictures([RecordedRun(Path("empty.jsonl"))], []) == []
