"""`make console-demo`: a cluster with five clients in five different troubles, and the console's page to find them."""

__all__: list[str] = []
