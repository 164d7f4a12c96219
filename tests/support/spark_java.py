"""Java for Spark that works on a few thousand rows: one compiler is enough.

With one alone the code cache is 48 MiB by default, and a session that does much fills it.
"""

from typing import Final

ENVIRONMENT: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
