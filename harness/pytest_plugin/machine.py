"""What an INCONCLUSIVE verdict says of the machine: which of its operations repeat themselves, asked once a run, and only then."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from harness.core.doctor import repeat
from harness.core.doctor.advice import advice
from harness.core.verdict import Finding, Verdict
from harness.pytest_plugin.state import CASE, RUN


def quoted(item: pytest.Item, finding: Finding | None) -> str:
    """A line for an INCONCLUSIVE finding, of the device that the item's case runs on; nothing for any other finding."""
    if finding is None or finding.verdict is not Verdict.INCONCLUSIVE:
        return ""
    run, case = item.config.stash[RUN], item.stash[CASE]
    device = case.profile.device
    found = repeat.quick(device)
    # With text for keys, as they go between processes and into JSON.
    run.doctor[device] = [{**asdict(r), "differs": {str(batch): step for batch, step in r.differs.items()}} for r in found]
    return advice(found, case.selection)
