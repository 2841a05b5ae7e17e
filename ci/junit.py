"""JUnit files as pytest writes them: read, counted anew, and a test written that only a report log tells of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

Name = tuple[str, str]
"""What names a test in a JUnit file: classname and name."""

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read(path: Path) -> tuple[ElementTree.Element | None, str]:
    """The one test suite of a file; or None, and what is wrong with the file."""
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return None, f"{path}: is missing"
    except (OSError, ElementTree.ParseError) as wrong:
        return None, f"{path}: {wrong}"
    suites = list(root.iter("testsuite"))
    return (suites[0], "") if len(suites) == 1 else (None, f"{path}: {len(suites)} test suites; pytest writes one")


def name_of(nodeid: str) -> Name:
    """How pytest names a test there: `suites/tier/test_a.py::TestB::test_c[d]` is `suites.tier.test_a.TestB` and `test_c[d]`."""
    address, bracket, parameters = nodeid.partition("[")
    file, *rest = address.split("::")
    parts = [re.sub(r"\.py$", "", file.replace("/", ".")), *rest]
    return ".".join(parts[:-1]), parts[-1] + bracket + parameters


def names(suite: ElementTree.Element) -> set[Name]:
    """The tests of a suite. One whose call and teardown both went wrong has two elements, and counts once."""
    return {_name(case) for case in suite.iter("testcase")}


def put(suite: ElementTree.Element, nodeid: str, reports: Sequence[Mapping[str, Any]]) -> None:
    """Write a test as its reports tell of it, in place of what the suite says of it."""
    for old in [case for case in suite.iter("testcase") if _name(case) == name_of(nodeid)]:
        suite.remove(old)
    suite.append(_case(nodeid, reports))


def put_error(suite: ElementTree.Element, name: str, message: str) -> None:
    """Write an error that is no test's, as pytest writes one of collection."""
    case = ElementTree.SubElement(suite, "testcase", classname="", name=name, time="0.000")
    ElementTree.SubElement(case, "error", message=_text(message))


def count(suite: ElementTree.Element) -> None:
    """Write the suite's totals anew: of tests, of what became of them, and of their time where the suite holds none of its session's."""
    cases = list(suite.iter("testcase"))
    suite.set("time", suite.get("time") or f"{sum(float(case.get('time') or 0) for case in cases):.3f}")
    for total, element in (("errors", "error"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(total, str(sum(case.find(element) is not None for case in cases)))
    suite.set("tests", str(len(names(suite))))


def join(suites: Iterable[ElementTree.Element]) -> ElementTree.Element:
    """A file's root over counted suites, with their totals."""
    root = ElementTree.Element("testsuites", name="pytest tests")
    root.extend(suites)
    for total in ("errors", "failures", "skipped", "tests"):
        root.set(total, str(sum(int(suite.get(total, 0)) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', 0)) for suite in root):.3f}")
    return root


def _name(case: ElementTree.Element) -> Name:
    return case.get("classname", ""), case.get("name", "")


def _case(nodeid: str, reports: Sequence[Mapping[str, Any]]) -> ElementTree.Element:
    classname, name = name_of(nodeid)
    seconds = sum(float(report.get("duration") or 0.0) for report in reports)
    case = ElementTree.Element("testcase", classname=classname, name=name, time=f"{seconds:.3f}")
    values: dict[str, Any] = {}
    for report in reports:
        values |= dict(report.get("user_properties") or [])
    if values:
        properties = ElementTree.SubElement(case, "properties")
        for key, value in values.items():
            ElementTree.SubElement(properties, "property", name=_text(key), value=_text(str(value)))
    for report in reports:
        if report.get("outcome") in ("failed", "skipped"):
            _add_outcome(case, report)
    return case


def _add_outcome(case: ElementTree.Element, report: Mapping[str, Any]) -> None:
    """What goes wrong in a call is a failure; in set-up and teardown an error, as pytest files it."""
    at_fault = "failure" if report.get("when") == "call" else "error"
    told = ElementTree.SubElement(case, "skipped" if report["outcome"] == "skipped" else at_fault)
    longrepr = report.get("longrepr")
    if isinstance(longrepr, Mapping):
        longrepr = (longrepr.get("reprcrash") or {}).get("message", "")
    elif isinstance(longrepr, list):
        longrepr = longrepr[-1]  # a skip: file, line, reason
    told.text = _text(str(longrepr or ""))
    told.set("message", told.text.partition("\n")[0])


def _text(text: str) -> str:
    """What XML can hold of it; other characters as pytest writes them, `#x1B`."""
    return _NOT_XML.sub(lambda found: f"#x{ord(found[0]):02X}", text)
