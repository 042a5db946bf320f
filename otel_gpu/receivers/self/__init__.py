"""How is the agent itself doing?"""
