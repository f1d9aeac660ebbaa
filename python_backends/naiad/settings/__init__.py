"""Settings that models and tools read: model parameters and prepared model directories."""
