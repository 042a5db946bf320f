"""What is this address, kernel handle or code object called?"""
