"""`make saturate`: a full core of the proxy, before a broker that costs nothing."""
