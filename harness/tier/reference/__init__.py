"""The embedded prefix-cache server: keys, tiers, a scheduler, and the network and pools that it drives."""
