"""Hands pytest to the plugin and to the fixtures."""

pytest_plugins = [
    "harness.pytest_plugin",
    "fixtures.transfer",
    "fixtures.ranks",
    "fixtures.schedules",
    "fixtures.connector",
    "fixtures.processes",
    "pytester",
]
