"""The driver programs, a folder a language; README.md beside this file is their common contract."""

__all__: list[str] = []
