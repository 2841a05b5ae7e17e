"""The embedded full-duplex engine: a Moshi-shaped network in plain torch, and the lockstep around it."""
