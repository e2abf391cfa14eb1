"""Inference in hidden Markov chains, as functions of arrays that know nothing of models, emissions or data.

Every function takes ``initial``, the distribution of the first state, shape ``(K,)``; ``transition``, the transition
probabilities, ``(K, K)``; and ``log_b``, the log-densities log p(x_t | z_t) in nats, ``(N, K)``. The N rows of
``log_b`` are the frames of one sequence or, if ``lengths`` is given, of several sequences, one after the other. Where
the end of a sequence is an event, ``final`` is the probability of ending after each state, ``(K,)``. ``HMM`` runs this
code.

- ``log_prob``: log p(x), differentiable in all arguments;
- ``forward_backward``: log p(x), p(z_t | x) and expected transitions (the E-step); ``smooth``: p(z_t | x) alone;
- ``filter``: p(z_t | x_1 .. x_t), and log p(x_t | x_1 .. x_t-1);
- ``viterbi``: the most probable path of states; ``list_viterbi``: the k most probable paths;
- ``forced_alignment``: the most probable path through given groups of states, one after the other;
- ``sample_states``: paths of states drawn from p(z | x).

``textbook`` has the same algorithms as plain loops, to be read.
"""

from seqmodels.inference.chains import textbook
from seqmodels.inference.chains.autograd import log_prob
from seqmodels.inference.chains.forced_alignment import forced_alignment
from seqmodels.inference.chains.forward_backward import filter, forward_backward, smooth
from seqmodels.inference.chains.list_viterbi import list_viterbi
from seqmodels.inference.chains.sampling import sample_states
from seqmodels.inference.chains.trellis import Filtered, Posterior
from seqmodels.inference.chains.viterbi import viterbi

__all__ = [
    "Filtered",
    "Posterior",
    "filter",
    "forced_alignment",
    "forward_backward",
    "list_viterbi",
    "log_prob",
    "sample_states",
    "smooth",
    "textbook",
    "viterbi",
]
