"""Reads recorded runs, and shows them to people who did not run them."""
