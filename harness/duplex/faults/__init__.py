"""Catalogued faults of the reference duplex engine: ways in which a real speech batcher was wrong. Kind A of the catalogue."""
