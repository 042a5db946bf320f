"""What do programs do with their RDMA devices, and what do these say of themselves?"""
