"""What do CPython's structures look like, from 3.8 to 3.15, and what do they say of a stack?"""
