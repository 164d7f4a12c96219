"""What is not done per frame: the view of the cluster, quotas, reassignments, and what is read again while running."""
