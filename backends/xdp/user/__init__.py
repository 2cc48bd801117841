"""The user half: one C program that loads the kernel half, takes what it hands on, and sends."""
