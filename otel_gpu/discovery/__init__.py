"""Which processes, libraries and containers exist, and when do new ones appear?"""
