"""What is a mangled name called in the source code? C++ (Itanium) and Rust, both forms."""
