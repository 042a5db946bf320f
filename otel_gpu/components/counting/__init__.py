"""What do the programs that count in the kernel share with those that take stacks, follow requests or look at RDMA?"""
