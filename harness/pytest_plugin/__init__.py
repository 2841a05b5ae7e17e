"""Assay as a pytest plugin: `pytest_plugins = ["harness.pytest_plugin"]`."""

pytest_plugins = [
    "harness.pytest_plugin.options",
    "harness.pytest_plugin.routing",
    "harness.pytest_plugin.soak",
    "harness.pytest_plugin.cards",
    "harness.pytest_plugin.scheduling",
    "harness.pytest_plugin.engines",
    "harness.pytest_plugin.verdicts",
    "harness.pytest_plugin.prove",
    "harness.pytest_plugin.plan",
    "harness.pytest_plugin.record",
    "harness.pytest_plugin.progress",
]
