"""The daemon: every operation over HTTP, for agents on other machines and for people."""
