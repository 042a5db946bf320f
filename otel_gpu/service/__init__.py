"""How are the parts wired, started and stopped? Receivers and pipelines come to life here, and no logic of theirs."""
