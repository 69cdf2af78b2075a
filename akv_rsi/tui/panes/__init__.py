"""The screens of the inspector, one a file."""
