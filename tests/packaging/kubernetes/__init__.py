"""Kubernetes without a cluster: the chart rendered, and judged by Helm, kubeconform, kube-score and `sluice check`.

tools/ pins the programs, which are Go modules, and has one of our own around the API server's admission. schemas/ has
what Kubernetes says of the kinds that are used.
"""
