"""How does everything end up in files?"""
