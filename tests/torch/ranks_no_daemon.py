# SPDX-License-Identifier: Apache-2.0
"""Rank program: there is no mlnetd at the socket."""
from rank_checks import Checks, error_of, join

checks = Checks()


@checks.check
def a_missing_daemon_is_an_error_that_says_what_to_do():
    text = error_of(join)
    assert "E_UNAVAILABLE" in text and "/nonexistent/mlnetd.sock" in text and "(" in text, text


checks.report()
