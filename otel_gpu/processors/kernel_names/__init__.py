"""Which kernels keep their names?"""
