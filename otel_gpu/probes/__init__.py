"""Which function of which library, with which arguments, at which instruction?"""
