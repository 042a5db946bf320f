"""Which GPUs do pods ask for, which are given to them, and which do they use?"""
