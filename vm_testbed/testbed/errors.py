# SPDX-License-Identifier: Apache-2.0
"""What the testbed tells its user instead of a traceback."""


class TestbedError(Exception):
    """Something that the user can act on, or a scenario that did not hold."""


def require(condition, message):
    """A scenario's assertion: what must hold, in words."""
    if not condition:
        raise TestbedError(message)
