"""HMMs whose parameters follow what they have read of a sequence: online EM."""

from seqmodels.online_em.model import OnlineEM

__all__ = ["OnlineEM"]
