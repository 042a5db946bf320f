"""How does Prometheus scrape the agent itself?"""
