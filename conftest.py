"""Hands pytest to the plugin and to the fixtures."""

pytest_plugins = [
    "harness.pytest_plugin",
    "fixtures.workload",
    "fixtures.transfer",
    "fixtures.ranks",
    "fixtures.schedules",
    "fixtures.connector",
    "fixtures.processes",
    "fixtures.worlds",
    "fixtures.duplex",
    "fixtures.duplex_dialogue",
    "fixtures.duplex_schedules",
    "fixtures.tier_engines",
    "fixtures.tier_http",
    "fixtures.tier_rounds",
    "fixtures.tier_scene",
    "fixtures.tier_schedules",
    "pytester",
]
