"""The inner suite of the plugin's tests: real runs to report on."""

from tests.plugin.conftest import suite  # noqa: F401
