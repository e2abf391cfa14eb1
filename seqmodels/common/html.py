"""HTML from the templates in ``seqmodels/common/templates``, with every inserted text escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def environment() -> Environment:
    """Return the Jinja environment of the templates; a template that uses a name it was not given raises an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only here: most programs need no HTML

    return Environment(
        loader=PackageLoader("seqmodels.common"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=False,
    )


def render(template: str, **values: Any) -> Markup:
    """Return the template called ``template``, filled with ``values``. Text is escaped; ``Markup`` is inserted
    unchanged.

    >>> render("facts.html", title="a < b", facts={}, cell="").count("a &lt; b")
    1
    """
    from markupsafe import Markup

    return Markup(environment().get_template(template).render(**values))


def element(name: str, *values: Any, **options: Any) -> Markup:
    """Call the macro ``name`` of ``elements.html`` with values and options, which are escaped, and return its HTML.

    >>> element("paragraph", "a < b")
    Markup('<p>a &lt; b</p>')
    """
    macro: Markup = getattr(environment().get_template("elements.html").module, name)(*values, **options)
    return macro
