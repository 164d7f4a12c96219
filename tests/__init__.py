"""The tests of Sluice; importable as `tests.cluster`, `tests.support`, ..."""
