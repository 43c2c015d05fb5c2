"""The daemon: every operation over HTTP, for agents elsewhere and for people who look."""
