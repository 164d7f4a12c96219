"""The attacks, one family a module: evasions of the quota by producing, by fetching, by standing in others' way; stops
and stalls of the process; memory.
"""
