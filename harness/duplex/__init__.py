"""Full-duplex speech batchers: slots in lockstep, a frame of audio in and a frame out a tick."""
