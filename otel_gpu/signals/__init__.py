"""What flows from receivers to exporters: metrics and profiles, as frozen values."""
