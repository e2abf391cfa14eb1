"""HTML from the templates in ``seqmodels/common/templates``: every text that is put into one is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def environment() -> Environment:
    """The templates; a name that one of them uses and is not given is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only here: most programs need no HTML

    return Environment(
        loader=PackageLoader("seqmodels.common"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=False,
    )


def render(template: str, **values: Any) -> Markup:
    """The template of this name with these values; ``Markup`` among them stays as it is, text is escaped.

    >>> render("facts.html", title="a < b", facts={}, cell="").count("a &lt; b")
    1
    """
    from markupsafe import Markup

    return Markup(environment().get_template(template).render(**values))


def element(name: str, *values: Any, **options: Any) -> Markup:
    """The macro of this name of ``elements.html`` with these values, which are escaped.

    >>> element("paragraph", "a < b")
    Markup('<p>a &lt; b</p>')
    """
    macro: Markup = getattr(environment().get_template("elements.html").module, name)(*values, **options)
    return macro
