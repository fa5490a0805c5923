"""Kubeflow: MPIJob of the mpi-operator, TrainJob and runtimes of Trainer."""
