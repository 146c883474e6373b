"""For all tests: logs go to standard error without values of variables, and CI skips nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from hybrid.services.log_lines import log_to_stderr

SOAK = bool(os.environ.get("HYBRID_SOAK"))

# A loaded machine is no fault of the code, so no example has a deadline of its own; and a run that
# was green is green again: new examples are for the soak to look for.
settings.register_profile(
    "hybrid",
    deadline=None,
    derandomize=not SOAK,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("hybrid")


# A shell that starts the tests in the background has them ignore Ctrl-C, and so has all that they
# start, although some of that is asked what it does then.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _logs_without_secrets() -> None:
    """Tracebacks with the values of variables would take long, and tell secrets."""
    log_to_stderr(level="info")


@pytest.fixture(autouse=True, scope="session")
def _caches_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is kept on disk for a day is not taken from an earlier run, nor left for a later one."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped for want of a server has failed, and says what is missing."""
    report = yield
    if report.skipped and os.environ.get("HYBRID_TEST_NO_SKIP") and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not be skipped in CI: {why}"
    return report
