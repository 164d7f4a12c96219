"""`sluice` with its arguments, run in this process: its exit code is checked, and its output kept."""

import pytest

from proxy import cli


class Sluice:
    """Runs commands.

    Attributes:
        out, err: what the last command printed.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: object, code: int = 0) -> str:
        """Run a command that ends with this exit code; return its standard output."""
        self._capsys.readouterr()
        try:
            found = cli.main([str(word) for word in words])
        except SystemExit as ended:  # argparse
            found = ended.code if isinstance(ended.code, int) else 1
        self.out, self.err = self._capsys.readouterr()
        assert found == code, self.err or self.out
        return self.out


@pytest.fixture
def sluice(capsys: pytest.CaptureFixture[str]) -> Sluice:
    """`sluice`, whose output is captured."""
    return Sluice(capsys)
