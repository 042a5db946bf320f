"""Which pod is it, and whose?"""
