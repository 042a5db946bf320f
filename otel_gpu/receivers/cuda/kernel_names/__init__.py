"""What is this kernel handle called? Fatbins, stubs, the driver's records, and whoever resolves one by them."""
