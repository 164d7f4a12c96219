"""What a change costs per request: two revisions of the proxy, measured in turns of one run."""
