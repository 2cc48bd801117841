"""Linux XDP: the kernel half of a program on the interfaces, the user half behind AF_XDP sockets."""
