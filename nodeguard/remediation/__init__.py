"""The remediation loop: moves training pods off faulty nodes, within a budget, and gives the nodes back."""
