"""Attributes that objects of users may have or not, looked up without hiding faults."""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

__all__ = ["attribute", "has_attribute", "is_of_class"]


def attribute(owner: object, name: str, default: Any = None) -> Any:
    """Return an attribute of an object, or the default if it has none of this name.

    ``getattr`` with a default takes an AttributeError that is raised within a property for a
    missing property. Here it is raised, as from any other use of the property.

    Examples
    --------
    >>> attribute(3, "numerator"), attribute(3, "length", "none")
    (3, 'none')
    """
    return getattr(owner, name) if is_of_class(owner, name) else getattr(owner, name, default)


def has_attribute(owner: object, name: str) -> bool:
    """Whether an object has an attribute; a property of its class is not evaluated."""
    return is_of_class(owner, name) or hasattr(owner, name)


def is_of_class(owner: object, name: str) -> bool:
    """Whether an object has an attribute of its class, other than a slot, which may be unset."""
    own = getattr(type(owner), name, None)
    return own is not None and not isinstance(own, MemberDescriptorType)
