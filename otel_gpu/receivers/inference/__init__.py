"""Which request was it that the GPU worked for? Requests on the sockets of GPU programs, and what became of them."""
