"""The embedded transfer engine: a whole manager, small enough to read, and a connector in memory."""
