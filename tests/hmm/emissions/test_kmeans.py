"""Where EM starts: clusters that do not depend on how a processor rounds."""

from __future__ import annotations

import pytest
import torch

from seqmodels.hmm.emissions.kmeans import kmeans_labels


@pytest.mark.parametrize("n_clusters", [3, 6])
def test_between_equally_near_centres_rounding_does_not_decide(n_clusters: int) -> None:
    """Corners of a simplex, all equally far from each other: turned, their distances are the same but for rounding."""
    x = torch.eye(9)[torch.arange(40) % 9 * torch.arange(40) % 5]
    for seed in range(8):
        labels = kmeans_labels(x, n_clusters, torch.Generator().manual_seed(seed))
        turn = torch.linalg.qr(torch.randn(9, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).Q
        turned = (x.double() @ turn).float()
        assert torch.equal(kmeans_labels(turned, n_clusters, torch.Generator().manual_seed(seed)), labels)
