"""Memory, time and traffic of large models by arithmetic, as in docs/scale.md: ``python benchmarks/arithmetic.py``.

Operations are multiplications and additions. Nothing is measured here; ``growth.py`` measures the slopes.
"""

from __future__ import annotations

from dataclasses import dataclass

OPERATIONS_PER_SECOND = 400e12  # of a device, in bfloat16: 40 % of an H100's peak of 989e12
LINK = 50e9  # bytes a second
BYTES_A_WEIGHT = 20  # in float32 with AdamW: itself, its gradient, two moments, the best so far
BYTES_OF_ACTIVATIONS = 34  # for each symbol, layer and unit of width, in 16 bits (Korthikanti et al. 2022)


@dataclass(frozen=True)
class Mixtures:
    """EM of an HMM of K states of M diagonal Gaussians of D features, an iteration over so many frames."""

    n_frames: float
    n_states: int
    n_components: int
    n_features: int

    @property
    def n_gaussians(self) -> int:
        """Of all states."""
        return self.n_states * self.n_components

    @property
    def operations_of_densities(self) -> float:
        """A product with 2 D features a frame; that of the statistics has as many."""
        return 4 * self.n_frames * self.n_gaussians * self.n_features

    @property
    def operations_of_recursions(self) -> float:
        """Forwards and backwards."""
        return 4 * self.n_frames * self.n_states**2

    @property
    def bytes_summed(self) -> int:
        """Between processes, an iteration: of starts, transitions, and for each Gaussian 1, x and x², in float64."""
        k = self.n_states
        return 8 * (k + k**2 + self.n_gaussians * (2 * self.n_features + 1))


@dataclass(frozen=True)
class Network:
    """A Transformer that is trained on windows of ``context`` symbols."""

    name: str
    n_weights: float
    n_layers: int
    d_model: int
    context: int = 1024
    n_windows: int = 8

    @property
    def bytes_of_weights(self) -> float:
        return BYTES_A_WEIGHT * self.n_weights

    @property
    def bytes_of_activations(self) -> float:
        return BYTES_OF_ACTIVATIONS * self.n_layers * self.n_windows * self.context * self.d_model

    @property
    def operations_a_symbol(self) -> float:
        """Of training: forwards and backwards, attention over the whole context."""
        return 6 * self.n_weights + 12 * self.n_layers * self.context * self.d_model

    @property
    def symbols_per_second(self) -> float:
        """Of one device."""
        return OPERATIONS_PER_SECOND / self.operations_a_symbol

    def bytes_sent(self, *, shards: bool) -> float:
        """By each of many processes, a step: an all-reduce of gradients, or weights gathered twice, gradients dealt."""
        return (12 if shards else 8) * self.n_weights


NETWORKS = (Network("GPT-2, 124 M", 124e6, 12, 768), Network("1 B", 1e9, 24, 1792))


def main() -> None:
    em = Mixtures(1e6, n_states=48, n_components=8, n_features=39)
    print("EM, an iteration over a million frames, K = 48, M = 8, D = 39")
    print(f"  densities, and statistics       {em.operations_of_densities:.1e} operations each")
    print(f"  forward and backward            {em.operations_of_recursions:.1e} operations")
    print(f"  summed between processes        {em.bytes_summed / 1e3:.0f} kB")
    for net in NETWORKS:
        billion, trillion = 1e9 / net.symbols_per_second, 1e12 / net.symbols_per_second / 64
        step = net.n_windows * net.context / net.symbols_per_second
        print(f"{net.name}: {net.n_layers} layers, width {net.d_model}, windows of {net.context} symbols")
        print(f"  20 bytes a weight               {net.bytes_of_weights / 1e9:.1f} GB")
        print(f"  activations of {net.n_windows} windows        {net.bytes_of_activations / 1e9:.1f} GB")
        print(f"  operations a symbol             {net.operations_a_symbol:.2e}")
        print(f"  symbols a second                {net.symbols_per_second:,.0f}")
        print(f"  1e9 symbols on one device       {billion / 60:.0f} minutes, {billion / 3600:.1f} hours")
        print(f"  1e12 symbols on 64 devices      {trillion / 3600:.1f} hours, {trillion / 86400:.1f} days")
        sent = [net.bytes_sent(shards=shards) for shards in (False, True)]
        print(f"  sent in a step, many processes  {sent[0] / 1e9:.1f} GB, in shards {sent[1] / 1e9:.1f} GB")
        print(f"  over the link, and the step     {1e3 * sent[0] / LINK:.0f} ms, {1e3 * step:.0f} ms")
        print(f"  weights in shards of 8          {net.bytes_of_weights / 8e9:.1f} GB each")


if __name__ == "__main__":
    main()
