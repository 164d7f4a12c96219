"""One quota over several processes, on a real broker: members, workers, and their faults (`make fleet`)."""
