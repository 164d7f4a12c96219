"""What the two command lines, `sluice` and `sluice-offline`, have in common.

Exit codes, help with defaults, old spellings, completion, closed pipes, and amounts as people read them. It imports
no other package of Sluice and no command.
"""

__all__: list[str] = []
