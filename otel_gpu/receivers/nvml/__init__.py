"""What does NVIDIA's library say of the GPUs?"""
