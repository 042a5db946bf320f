"""What is HIP's alone in what is counted of both?"""
