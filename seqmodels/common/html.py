"""HTML from the templates in ``seqmodels/common/templates``, with every inserted text escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def environment() -> Environment:
    """Return the Jinja environment of this package's HTML templates.

    A template that uses a name it was not given raises an error.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only here: most programs need no HTML

    return Environment(
        loader=PackageLoader("seqmodels.common"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=False,
    )


def render(template: str, **values: Any) -> Markup:
    """Return an HTML template of this package, filled with values, as ``Markup``.

    Text is escaped; ``Markup`` is inserted unchanged.

    Args:
        template: file name of the template.
        values: values of the template's names.

    >>> render("facts.html", title="a < b", facts={}, cell="").count("a &lt; b")
    1
    """
    from markupsafe import Markup

    return Markup(environment().get_template(template).render(**values))


def element(name: str, *values: Any, **options: Any) -> Markup:
    """Return the HTML that a macro of the template ``elements.html`` makes, such as a paragraph.

    Args:
        name: name of the macro.
        values, options: its arguments, which are escaped.

    >>> element("paragraph", "a < b")
    Markup('<p>a &lt; b</p>')
    """
    macro: Markup = getattr(environment().get_template("elements.html").module, name)(*values, **options)
    return macro
