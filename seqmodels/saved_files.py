"""``load``: what ``save`` wrote, a model, a classifier or anomalies with their threshold: only the file knows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from seqmodels import loading, storage
from seqmodels.parameters import checked


@checked
def load(path: str | os.PathLike[str], *, classes: Iterable[type] = ()) -> Any:
    """What ``save`` wrote, by this version or an older one; fitted, and the same figures to the last bit.

    A ``SequenceModel``, or a ``MaskedTransformer``, a ``GenerativeClassifier`` or ``Anomalies``, which are none: only
    the file knows. Files from strangers may be loaded: nothing in one can run code, take much more memory than it has
    bytes, or say where the next ``fit`` writes; ``checkpoint``, ``resume_from`` and ``callbacks`` are at their
    defaults.

    Args:
        path: of the file.
        classes: classes of one's own that the file holds: a model, an observation, an encoding, an optimizer, ... A
            file names them; they are found here and nowhere else.

    Raises:
        ValueError: another file, a damaged one, one of a newer version, one that holds a class which is not known, or
            one whose numbers no fit could have found.
    """
    return restored(storage.read(path), path, classes)


def restored(content: dict[str, Any], path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Any:
    """What ``storage.read`` found in a file; ``ValueError``, naming the file, where it is malformed."""
    with loading.errors_of(path):
        has_threshold = storage.part_of(storage.part_of(content, "model"), "class", str) == "Anomalies"
    if not has_threshold:
        return loading.restored(content, path, classes)
    from seqmodels.anomalies import Anomalies  # which needs the evaluation, models do not

    known = {**loading.PUBLIC, **storage.given_classes(classes)}
    with loading.errors_of(path):
        detector = storage.build(content["model"], {**known, "Anomalies": Anomalies})
        return detector._load(content, loading.restored_model(content["fitted"], known))
