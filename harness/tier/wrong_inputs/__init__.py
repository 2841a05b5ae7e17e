"""Wrong answers of the embedded prefix-cache server, each made for one claim that no catalogued fault covers."""
