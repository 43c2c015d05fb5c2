"""The version of dibs, written once."""

VERSION = "0.1.0"
