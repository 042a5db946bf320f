"""What is this address or code object called?"""
