"""What the JVM prints while it starts: noise is left out, errors pass, and all is as before afterwards."""

import logging
import subprocess
import sys

import pytest

from offline.session import is_not_py4j, without_noise

_JVM = """
import sys
sys.stderr.write("WARNING: Using incubator modules: jdk.incubator.vector\\n")
sys.stderr.write("NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\\n")
sys.stderr.write("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\\n")
sys.stderr.write('Setting default log level to "WARN".\\n')
sys.stderr.write("12:00:00 ERROR SparkContext: no disk\\n")
"""


def test_noise_is_left_out_and_errors_pass(capfd: pytest.CaptureFixture[str]) -> None:
    with without_noise():
        subprocess.run([sys.executable, "-c", _JVM], check=True, timeout=60)
    print("WARNING: our own", file=sys.stderr)
    sys.stderr.flush()
    said = ""
    while "no disk" not in said:  # another thread copies it
        said += capfd.readouterr().err
    assert sorted(said.splitlines()) == ["12:00:00 ERROR SparkContext: no disk", "WARNING: our own"]


@pytest.mark.parametrize(
    ("path", "shown"),
    [("/lib/py4j/clientserver.py", False), ("/lib/offline/py4j.py", True)],
    ids=["py4j", "other"],
)
def test_tracebacks_that_py4j_logs_are_left_out(path: str, *, shown: bool) -> None:
    record = logging.LogRecord("root", logging.ERROR, path, 1, "Exception while sending command.", (), None)
    assert is_not_py4j(record) == shown
