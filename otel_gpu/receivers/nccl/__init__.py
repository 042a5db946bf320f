"""What do programs ask of NCCL, or RCCL, and which of their ranks keep the others waiting?"""
