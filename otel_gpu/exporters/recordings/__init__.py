"""How does a recording become a file for people, and profiles again?"""
