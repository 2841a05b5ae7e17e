"""Wrong answers of the reference duplex engine, each made for one claim that no catalogued fault covers."""
