"""What does a process hold? Its files and its memory, opened confined and read where they can do no harm."""
