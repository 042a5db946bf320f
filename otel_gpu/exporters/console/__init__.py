"""What does a person at a terminal see?"""
