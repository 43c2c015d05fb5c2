"""Our HMAC against the standard library's."""

from __future__ import annotations

import hashlib
import hmac
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.digest import Hmac, sha256


@given(st.binary(max_size=64), st.binary(max_size=300), st.binary(max_size=300))
def test_it_is_the_hmac_of_the_standard_library(key, beginning, rest):
    ours = Hmac(key, beginning).digest(rest).digest()
    assert ours == hmac.digest(key, beginning + rest, "sha256")


@given(st.binary(max_size=300))
def test_it_is_the_sha256_of_the_standard_library(text):
    assert sha256(text).hexdigest() == hashlib.sha256(text).hexdigest()


def test_a_key_that_would_need_hashing_is_refused():
    with pytest.raises(ValueError, match="at most 64 bytes"):
        Hmac(b"x" * 65)


def test_openssl_is_not_needed():
    assert sha256.__module__ in ("_sha2", "_sha256"), sys.version
