"""Hours of honest and hostile clients, restarts and reloads; and a crowd of ten thousand at once."""
