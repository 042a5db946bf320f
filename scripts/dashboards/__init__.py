"""Which dashboards does Grafana get? One module each; `python -m scripts.dashboards` writes deploy/grafana/*.json."""
