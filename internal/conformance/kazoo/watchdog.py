"""Ends tests of kazoo that wait forever, for pytest -p watchdog.

Some hand a lock from thread to thread and wait until nobody has it, without a
limit. If the next thread gets it before the waiting one has looked, which
happens on a busy machine, they wait forever. Such a test is to fail, and to be
run again, rather than to take all others along.
"""

import atexit
import os
import signal

import pytest

# Seconds. The longest test takes twelve if no other program needs the processor, and the first
# test of a class also starts a server.
LIMIT = 90


class WaitsForever(Exception):
    pass


def bark(signum, frame):
    signal.alarm(5)  # a clean-up may wait forever for the threads of the test
    raise WaitsForever("still not done after %d seconds" % LIMIT)


@pytest.hookimpl(hookwrapper=True)
def guarded(item):
    signal.signal(signal.SIGALRM, bark)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = guarded


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Leaves without the threads that are left, but stops the servers."""
    atexit._run_exitfuncs()
    os._exit(0)
