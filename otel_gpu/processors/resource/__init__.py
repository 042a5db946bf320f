"""What else is to be said of who a process is, and what is not?"""
