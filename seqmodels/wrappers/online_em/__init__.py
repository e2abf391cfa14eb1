"""HMMs whose parameters follow what they have read of a sequence: online EM."""

from seqmodels.wrappers.online_em.model import OnlineEM

__all__ = ["OnlineEM"]
