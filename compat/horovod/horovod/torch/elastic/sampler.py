"""ElasticSampler."""

from rueda.torch.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
