"""Which pods run on this node, and what does Kubernetes say of them?"""
