"""What all component tests share."""

from tests.support.command_line import sluice
from tests.support.quiet_logging import logging_stays

__all__ = ["logging_stays", "sluice"]
