"""What several kinds of tests use: the proxy as a process, a tap on the wire, scripted dialogues."""

__all__: list[str] = []
