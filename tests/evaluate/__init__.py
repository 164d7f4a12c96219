"""How good the advice is on days that it has not seen: made-up families and measured series, for docs/advice.md.

__main__    `make evaluate`: makes the recordings, runs `sluice-offline evaluate` on them, and writes the tables
"""

__all__: list[str] = []
