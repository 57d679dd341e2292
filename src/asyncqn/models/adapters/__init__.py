"""Problems that a user brings: two functions, a torch module, a JAX loss, bounded parameters, libsvm
files."""
